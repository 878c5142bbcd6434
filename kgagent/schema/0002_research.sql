-- Research memory, and what it refuses. Every RAISE text says which rule was broken; tests/graph/test_refusals.py tries each.
-- kg_sha256(text) and kg_object_intact(sha) are functions of kgagent's own writing connection: without them no row
-- can be added here, so a stray sqlite3 shell can read the memory but not forge it.

CREATE TABLE lane (
  key              INTEGER PRIMARY KEY REFERENCES node(key),
  kind             TEXT NOT NULL CHECK (kind IN ('kernel', 'model', 'repository')),
  metric           TEXT NOT NULL,
  unit             TEXT NOT NULL,
  direction        TEXT NOT NULL CHECK (direction IN ('min', 'max')),
  refutation_reach INTEGER NOT NULL DEFAULT 1 CHECK (refutation_reach >= 0),  -- knobs a configuration may differ in and still be ruled out
  digest           TEXT NOT NULL
) STRICT;

CREATE TABLE lane_gate (
  lane      INTEGER NOT NULL REFERENCES lane(key) ON DELETE CASCADE,
  gate      TEXT NOT NULL,
  mandatory INTEGER NOT NULL CHECK (mandatory IN (0, 1)),
  PRIMARY KEY (lane, gate)
) STRICT, WITHOUT ROWID;

-- What the lane fixes. Numbers compare only within one scope.
CREATE TABLE scope (
  key      INTEGER PRIMARY KEY REFERENCES node(key),
  lane     INTEGER NOT NULL REFERENCES lane(key),
  digest   TEXT NOT NULL,
  chip     TEXT NOT NULL,
  topology TEXT NOT NULL,
  problem  TEXT NOT NULL CHECK (json_valid(problem)),
  metric   TEXT NOT NULL,
  jax      TEXT NOT NULL,
  libtpu   TEXT NOT NULL,
  harness  TEXT NOT NULL,
  UNIQUE (lane, digest)
) STRICT;

-- What a candidate changes.
CREATE TABLE configuration (
  key      INTEGER PRIMARY KEY REFERENCES node(key),
  lane     INTEGER NOT NULL REFERENCES lane(key),
  digest   TEXT NOT NULL,
  knobs    TEXT NOT NULL CHECK (json_valid(knobs)),
  flags    TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(flags)),
  code_sha TEXT NOT NULL,
  UNIQUE (lane, digest)
) STRICT;

CREATE TABLE hypothesis (
  key              INTEGER PRIMARY KEY REFERENCES node(key),
  lane             INTEGER NOT NULL REFERENCES lane(key),
  scope            INTEGER NOT NULL REFERENCES scope(key),
  configuration    INTEGER NOT NULL REFERENCES configuration(key),
  lever            TEXT NOT NULL,
  statement        TEXT NOT NULL CHECK (length(trim(statement)) > 0),
  mechanism        TEXT NOT NULL CHECK (length(trim(mechanism)) > 0),
  predicted_signal TEXT NOT NULL CHECK (length(trim(predicted_signal)) > 0),
  falsification    TEXT NOT NULL CHECK (length(trim(falsification)) > 0),
  origin           TEXT NOT NULL,
  expected_gain    REAL,
  cost_minutes     REAL,
  prior            REAL CHECK (prior IS NULL OR (prior > 0 AND prior < 1)),
  whats_new        TEXT NOT NULL DEFAULT '',
  status           TEXT NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'running', 'done', 'blocked', 'vetoed')),
  created_at       TEXT NOT NULL
) STRICT;
CREATE INDEX hypothesis_lane ON hypothesis(lane, status);
CREATE INDEX hypothesis_point ON hypothesis(lane, scope, configuration);

CREATE TABLE experiment (
  key           INTEGER PRIMARY KEY REFERENCES node(key),
  lane          INTEGER NOT NULL REFERENCES lane(key),
  scope         INTEGER NOT NULL REFERENCES scope(key),
  configuration INTEGER NOT NULL REFERENCES configuration(key),
  hypothesis    INTEGER REFERENCES hypothesis(key),
  role          TEXT NOT NULL CHECK (role IN ('reference', 'trial')),
  baseline      INTEGER REFERENCES experiment(key),
  rerun_of      INTEGER REFERENCES experiment(key),
  origin        TEXT NOT NULL CHECK (origin IN ('local', 'trail')),
  backend       TEXT NOT NULL,
  branch        TEXT NOT NULL DEFAULT '',
  commit_sha    TEXT NOT NULL DEFAULT '',
  started_at    TEXT NOT NULL,
  finished_at   TEXT,
  outcome       TEXT NOT NULL CHECK (outcome IN ('completed', 'crashed', 'out_of_memory', 'timeout', 'flooded', 'refused', 'blocked', 'cancelled')),
  detail        TEXT NOT NULL DEFAULT '',
  merge_state   TEXT NOT NULL DEFAULT 'none' CHECK (merge_state IN ('none', 'candidate', 'merged')),
  merged_by     INTEGER REFERENCES experiment(key),
  quarantined   TEXT,
  filed         INTEGER NOT NULL DEFAULT 0 CHECK (filed IN (0, 1)),
  CHECK (role = 'reference' OR hypothesis IS NOT NULL)
) STRICT;
CREATE INDEX experiment_point ON experiment(lane, scope, configuration);
CREATE INDEX experiment_hypothesis ON experiment(hypothesis);

CREATE TABLE artefact (
  experiment INTEGER NOT NULL REFERENCES experiment(key),
  role       TEXT NOT NULL,
  sha        TEXT NOT NULL,
  bytes      INTEGER NOT NULL,
  PRIMARY KEY (experiment, role)
) STRICT, WITHOUT ROWID;

CREATE TABLE receipt (
  sha        TEXT PRIMARY KEY,
  experiment INTEGER NOT NULL REFERENCES experiment(key),
  seq        INTEGER NOT NULL CHECK (seq >= 0),
  prev       TEXT NOT NULL,
  step       TEXT NOT NULL,
  body       TEXT NOT NULL CHECK (json_valid(body)),
  UNIQUE (experiment, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE gate (
  experiment INTEGER NOT NULL REFERENCES experiment(key),
  name       TEXT NOT NULL,
  result     TEXT NOT NULL CHECK (result IN ('pass', 'fail', 'not_applicable')),
  detail     TEXT NOT NULL,
  evidence   TEXT NOT NULL CHECK (json_valid(evidence)),
  receipt    TEXT NOT NULL REFERENCES receipt(sha),
  PRIMARY KEY (experiment, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE measurement (
  key        INTEGER PRIMARY KEY,
  experiment INTEGER NOT NULL REFERENCES experiment(key),
  leg        TEXT NOT NULL CHECK (leg IN ('candidate', 'baseline')),
  scope      INTEGER NOT NULL REFERENCES scope(key),
  op_point   TEXT NOT NULL CHECK (length(trim(op_point)) > 0),
  metric     TEXT NOT NULL,
  unit       TEXT NOT NULL,
  statistic  TEXT NOT NULL CHECK (length(trim(statistic)) > 0),
  value      REAL NOT NULL,
  samples    INTEGER NOT NULL CHECK (samples > 0),
  timer      TEXT NOT NULL CHECK (length(trim(timer)) > 0),
  device     TEXT NOT NULL
) STRICT;
CREATE INDEX measurement_experiment ON measurement(experiment);

-- speedup > 1 means the candidate is better, whichever way the metric points.
CREATE TABLE comparison (
  key                  INTEGER PRIMARY KEY,
  experiment           INTEGER NOT NULL REFERENCES experiment(key),
  candidate            INTEGER NOT NULL REFERENCES measurement(key),
  baseline             INTEGER NOT NULL REFERENCES measurement(key),
  speedup              REAL NOT NULL CHECK (speedup > 0),
  ci_low               REAL NOT NULL,
  ci_high              REAL NOT NULL,
  noise_floor_frac     REAL NOT NULL CHECK (noise_floor_frac >= 0),
  pairs                INTEGER NOT NULL CHECK (pairs > 0),
  speedup_vs_reference REAL NOT NULL CHECK (speedup_vs_reference > 0),
  CHECK (ci_low <= speedup AND speedup <= ci_high)
) STRICT;
CREATE INDEX comparison_experiment ON comparison(experiment);

CREATE TABLE guard (
  experiment INTEGER NOT NULL REFERENCES experiment(key),
  metric     TEXT NOT NULL,
  value      REAL NOT NULL,
  bound      REAL NOT NULL,               -- worst value allowed; guards are stated so that smaller is better
  ok         INTEGER NOT NULL GENERATED ALWAYS AS (value <= bound) STORED,
  PRIMARY KEY (experiment, metric)
) STRICT, WITHOUT ROWID;

CREATE TABLE verdict (
  experiment INTEGER PRIMARY KEY REFERENCES experiment(key),
  verdict    TEXT NOT NULL CHECK (verdict IN ('supported', 'refuted', 'inconclusive', 'invalid')),
  kind       TEXT NOT NULL CHECK (kind IN ('measured', 'predicted')),
  reason     TEXT NOT NULL CHECK (length(trim(reason)) > 0),
  inputs     TEXT NOT NULL CHECK (json_valid(inputs)),
  receipt    TEXT REFERENCES receipt(sha),
  decided_at TEXT NOT NULL
) STRICT;

-- A refutation held against an open hypothesis.
CREATE TABLE ruling (
  hypothesis INTEGER NOT NULL REFERENCES hypothesis(key),
  experiment INTEGER NOT NULL REFERENCES experiment(key),
  PRIMARY KEY (hypothesis, experiment)
) STRICT, WITHOUT ROWID;

-- 1. The same change at the same operating point, unless it says what is new.
CREATE TRIGGER hypothesis_repeats BEFORE INSERT ON hypothesis
WHEN EXISTS (SELECT 1 FROM hypothesis h WHERE h.lane = new.lane AND h.scope = new.scope AND h.configuration = new.configuration
             AND (trim(new.whats_new) = '' OR h.whats_new = new.whats_new))
BEGIN SELECT RAISE(ABORT, 'refused: the same change at the same operating point was proposed before; say what is new'); END;

-- 2. An experiment is of its hypothesis: same lane, scope and configuration.
CREATE TRIGGER experiment_of_hypothesis BEFORE INSERT ON experiment
WHEN new.hypothesis IS NOT NULL AND NOT EXISTS (SELECT 1 FROM hypothesis h WHERE h.key = new.hypothesis AND h.lane = new.lane
             AND h.scope = new.scope AND h.configuration = new.configuration)
BEGIN SELECT RAISE(ABORT, 'refused: the experiment''s lane, scope or configuration is not its hypothesis'''); END;

-- 3. Receipts hash what they say and chain without a gap; artefacts exist and hash to their name.
CREATE TRIGGER receipt_hash BEFORE INSERT ON receipt WHEN new.sha <> kg_sha256(new.body)
BEGIN SELECT RAISE(ABORT, 'refused: the receipt''s hash is not the hash of its body'); END;
CREATE TRIGGER receipt_chain BEFORE INSERT ON receipt
WHEN new.prev <> coalesce((SELECT r.sha FROM receipt r WHERE r.experiment = new.experiment AND r.seq = new.seq - 1), '')
  OR (new.seq > 0 AND new.prev = '') OR json_extract(new.body, '$.prev') IS NOT new.prev
BEGIN SELECT RAISE(ABORT, 'refused: the receipt does not follow the one before it'); END;
CREATE TRIGGER artefact_intact BEFORE INSERT ON artefact WHEN NOT kg_object_intact(new.sha)
BEGIN SELECT RAISE(ABORT, 'refused: the artefact is not in raw/objects with that hash'); END;
CREATE TRIGGER gate_receipt BEFORE INSERT ON gate
WHEN NOT EXISTS (SELECT 1 FROM receipt r, json_each(r.body, '$.gates') g WHERE r.sha = new.receipt AND r.experiment = new.experiment
                 AND json_extract(g.value, '$.name') = new.name AND json_extract(g.value, '$.result') = new.result)
BEGIN SELECT RAISE(ABORT, 'refused: the gate''s receipt does not hold that result'); END;

-- 4. Numbers meet only within one scope, metric, statistic and operating point.
CREATE TRIGGER comparison_scope BEFORE INSERT ON comparison
WHEN NOT EXISTS (SELECT 1 FROM measurement a, measurement b WHERE a.key = new.candidate AND b.key = new.baseline AND a.scope = b.scope
                 AND a.metric = b.metric AND a.unit = b.unit AND a.statistic = b.statistic AND a.timer = b.timer AND a.op_point = b.op_point)
BEGIN SELECT RAISE(ABORT, 'refused: the two numbers differ in scope, operating point, metric, statistic or timer'); END;
CREATE TRIGGER measurement_scope BEFORE INSERT ON measurement
WHEN new.scope IS NOT (SELECT e.scope FROM experiment e WHERE e.key = new.experiment)
BEGIN SELECT RAISE(ABORT, 'refused: the measurement''s scope is not its experiment''s'); END;

-- 5. Verdicts.
CREATE TRIGGER verdict_unsound BEFORE INSERT ON verdict
WHEN new.verdict <> 'invalid' AND (EXISTS (SELECT 1 FROM gate g WHERE g.experiment = new.experiment AND g.result = 'fail')
     OR (SELECT e.outcome FROM experiment e WHERE e.key = new.experiment) <> 'completed')
BEGIN SELECT RAISE(ABORT, 'refused: a gate failed or the run did not complete; the only verdict is invalid'); END;
CREATE TRIGGER verdict_decided BEFORE INSERT ON verdict
WHEN new.verdict IN ('supported', 'refuted') AND new.kind = 'measured'
     AND NOT EXISTS (SELECT 1 FROM comparison c WHERE c.experiment = new.experiment)
BEGIN SELECT RAISE(ABORT, 'refused: a measured verdict needs a comparison'); END;
CREATE TRIGGER verdict_gates BEFORE INSERT ON verdict
WHEN new.verdict = 'supported' AND EXISTS (SELECT 1 FROM lane_gate lg JOIN experiment e ON e.lane = lg.lane WHERE e.key = new.experiment
     AND lg.mandatory = 1 AND NOT EXISTS (SELECT 1 FROM gate g WHERE g.experiment = e.key AND g.name = lg.gate AND g.result = 'pass'))
BEGIN SELECT RAISE(ABORT, 'refused: supported needs a passing receipt for each mandatory gate'); END;
CREATE TRIGGER verdict_mechanism BEFORE INSERT ON verdict
WHEN new.verdict = 'supported' AND NOT EXISTS (SELECT 1 FROM gate g WHERE g.experiment = new.experiment AND g.name = 'mechanism' AND g.result = 'pass')
BEGIN SELECT RAISE(ABORT, 'refused: supported needs evidence that the mechanism fired'); END;
CREATE TRIGGER verdict_noise BEFORE INSERT ON verdict
WHEN new.verdict = 'supported' AND new.kind = 'measured'
     AND NOT EXISTS (SELECT 1 FROM comparison c WHERE c.experiment = new.experiment AND c.ci_low > 1 AND c.speedup > 1 + c.noise_floor_frac)
BEGIN SELECT RAISE(ABORT, 'refused: supported needs a measurement beyond its noise floor'); END;
CREATE TRIGGER verdict_guards BEFORE INSERT ON verdict
WHEN new.verdict = 'supported' AND EXISTS (SELECT 1 FROM guard g WHERE g.experiment = new.experiment AND g.ok = 0)
BEGIN SELECT RAISE(ABORT, 'refused: a guarded metric is worse than its bound'); END;
CREATE TRIGGER verdict_receipt BEFORE INSERT ON verdict
WHEN new.verdict IN ('supported', 'refuted') AND (new.receipt IS NULL OR NOT EXISTS
     (SELECT 1 FROM receipt r WHERE r.sha = new.receipt AND r.experiment = new.experiment AND json_extract(r.body, '$.verdict') = new.verdict))
BEGIN SELECT RAISE(ABORT, 'refused: the verdict has no receipt that says the same'); END;
CREATE TRIGGER verdict_artefacts BEFORE INSERT ON verdict
WHEN EXISTS (SELECT 1 FROM receipt r, json_each(r.body, '$.artefacts') a WHERE r.experiment = new.experiment
     AND NOT EXISTS (SELECT 1 FROM artefact x WHERE x.experiment = new.experiment AND x.role = a.key AND x.sha = a.value AND kg_object_intact(x.sha)))
BEGIN SELECT RAISE(ABORT, 'refused: a receipt names an artefact whose hash does not match what is stored'); END;
CREATE TRIGGER verdict_quarantined BEFORE INSERT ON verdict
WHEN new.verdict = 'supported' AND (SELECT e.quarantined FROM experiment e WHERE e.key = new.experiment) IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'refused: a quarantined experiment supports nothing'); END;

-- 6. A refutation stays in its scope and near its configuration.
CREATE TRIGGER ruling_scope BEFORE INSERT ON ruling
WHEN NOT EXISTS (SELECT 1 FROM hypothesis h, experiment e JOIN verdict v ON v.experiment = e.key
                 WHERE h.key = new.hypothesis AND e.key = new.experiment AND v.verdict = 'refuted' AND v.kind = 'measured'
                   AND e.quarantined IS NULL AND h.lane = e.lane AND h.scope = e.scope)
BEGIN SELECT RAISE(ABORT, 'refused: a refutation applies only within its own scope'); END;
CREATE TRIGGER ruling_distance BEFORE INSERT ON ruling
WHEN (SELECT count(*) FROM (SELECT k.key FROM hypothesis h JOIN configuration c ON c.key = h.configuration, json_each(c.knobs) k WHERE h.key = new.hypothesis
        UNION SELECT k.key FROM experiment e JOIN configuration c ON c.key = e.configuration, json_each(c.knobs) k WHERE e.key = new.experiment) n
      WHERE (SELECT json_extract(c.knobs, '$."' || n.key || '"') FROM hypothesis h JOIN configuration c ON c.key = h.configuration WHERE h.key = new.hypothesis)
         IS NOT (SELECT json_extract(c.knobs, '$."' || n.key || '"') FROM experiment e JOIN configuration c ON c.key = e.configuration WHERE e.key = new.experiment))
   > (SELECT l.refutation_reach FROM hypothesis h JOIN lane l ON l.key = h.lane WHERE h.key = new.hypothesis)
BEGIN SELECT RAISE(ABORT, 'refused: the refuted configuration is too far from this one'); END;

-- 7. A kernel-lane win is a candidate until a model lane with it in was supported.
CREATE TRIGGER experiment_merged_insert BEFORE INSERT ON experiment WHEN new.merge_state <> 'none'
BEGIN SELECT RAISE(ABORT, 'refused: an experiment starts unmerged'); END;
CREATE TRIGGER experiment_candidate BEFORE UPDATE OF merge_state ON experiment
WHEN new.merge_state = 'candidate' AND NOT EXISTS (SELECT 1 FROM verdict v WHERE v.experiment = new.key AND v.verdict = 'supported' AND v.kind = 'measured')
BEGIN SELECT RAISE(ABORT, 'refused: only a supported experiment can become a candidate'); END;
CREATE TRIGGER experiment_merged BEFORE UPDATE OF merge_state ON experiment
WHEN new.merge_state = 'merged' AND (old.merge_state <> 'candidate' OR NOT EXISTS (
       SELECT 1 FROM experiment m JOIN lane l ON l.key = m.lane JOIN verdict v ON v.experiment = m.key
       JOIN edge u ON u.src = m.key AND u.dst = new.key AND u.type = 'uses'
       WHERE m.key = new.merged_by AND l.kind = 'model' AND v.verdict = 'supported' AND v.kind = 'measured' AND m.quarantined IS NULL))
BEGIN SELECT RAISE(ABORT, 'refused: not merged before a model lane with it in was supported'); END;

-- 8. Filed means filed.
CREATE TRIGGER experiment_filed BEFORE UPDATE ON experiment
WHEN old.filed = 1 AND (new.filed <> 1 OR old.lane <> new.lane OR old.scope <> new.scope OR old.configuration <> new.configuration
     OR old.hypothesis IS NOT new.hypothesis OR old.role <> new.role OR old.baseline IS NOT new.baseline OR old.outcome <> new.outcome
     OR old.detail <> new.detail OR old.commit_sha <> new.commit_sha OR old.branch <> new.branch OR old.started_at <> new.started_at OR old.finished_at IS NOT new.finished_at
     OR old.backend <> new.backend OR old.origin <> new.origin OR old.quarantined IS NOT new.quarantined OR old.rerun_of IS NOT new.rerun_of)
BEGIN SELECT RAISE(ABORT, 'refused: a filed experiment is not edited; rerun it'); END;
CREATE TRIGGER experiment_kept BEFORE DELETE ON experiment WHEN old.filed = 1
BEGIN SELECT RAISE(ABORT, 'refused: a filed experiment is not deleted'); END;
CREATE TRIGGER measurement_late BEFORE INSERT ON measurement WHEN (SELECT filed FROM experiment WHERE key = new.experiment) = 1
BEGIN SELECT RAISE(ABORT, 'refused: a filed experiment is not edited; rerun it'); END;
CREATE TRIGGER measurement_kept BEFORE UPDATE ON measurement WHEN (SELECT filed FROM experiment WHERE key = old.experiment) = 1
BEGIN SELECT RAISE(ABORT, 'refused: a filed experiment is not edited; rerun it'); END;
CREATE TRIGGER measurement_gone BEFORE DELETE ON measurement WHEN (SELECT filed FROM experiment WHERE key = old.experiment) = 1
BEGIN SELECT RAISE(ABORT, 'refused: a filed experiment is not edited; rerun it'); END;
CREATE TRIGGER comparison_late BEFORE INSERT ON comparison WHEN (SELECT filed FROM experiment WHERE key = new.experiment) = 1
BEGIN SELECT RAISE(ABORT, 'refused: a filed experiment is not edited; rerun it'); END;
CREATE TRIGGER comparison_kept BEFORE UPDATE ON comparison WHEN (SELECT filed FROM experiment WHERE key = old.experiment) = 1
BEGIN SELECT RAISE(ABORT, 'refused: a filed experiment is not edited; rerun it'); END;
CREATE TRIGGER comparison_gone BEFORE DELETE ON comparison WHEN (SELECT filed FROM experiment WHERE key = old.experiment) = 1
BEGIN SELECT RAISE(ABORT, 'refused: a filed experiment is not edited; rerun it'); END;
CREATE TRIGGER gate_late BEFORE INSERT ON gate WHEN (SELECT filed FROM experiment WHERE key = new.experiment) = 1
BEGIN SELECT RAISE(ABORT, 'refused: a filed experiment is not edited; rerun it'); END;
CREATE TRIGGER gate_kept BEFORE UPDATE ON gate
BEGIN SELECT RAISE(ABORT, 'refused: a gate''s result is not edited; rerun the experiment'); END;
CREATE TRIGGER gate_gone BEFORE DELETE ON gate WHEN (SELECT filed FROM experiment WHERE key = old.experiment) = 1
BEGIN SELECT RAISE(ABORT, 'refused: a filed experiment is not edited; rerun it'); END;
CREATE TRIGGER receipt_late BEFORE INSERT ON receipt WHEN (SELECT filed FROM experiment WHERE key = new.experiment) = 1
BEGIN SELECT RAISE(ABORT, 'refused: a filed experiment is not edited; rerun it'); END;
CREATE TRIGGER receipt_kept BEFORE UPDATE ON receipt
BEGIN SELECT RAISE(ABORT, 'refused: a receipt is not edited'); END;
CREATE TRIGGER receipt_gone BEFORE DELETE ON receipt
BEGIN SELECT RAISE(ABORT, 'refused: a receipt is not deleted'); END;
CREATE TRIGGER artefact_kept BEFORE UPDATE ON artefact
BEGIN SELECT RAISE(ABORT, 'refused: an artefact is not edited'); END;
CREATE TRIGGER artefact_late BEFORE INSERT ON artefact WHEN (SELECT filed FROM experiment WHERE key = new.experiment) = 1
BEGIN SELECT RAISE(ABORT, 'refused: a filed experiment is not edited; rerun it'); END;
CREATE TRIGGER artefact_gone BEFORE DELETE ON artefact WHEN (SELECT filed FROM experiment WHERE key = old.experiment) = 1
BEGIN SELECT RAISE(ABORT, 'refused: a filed experiment is not edited; rerun it'); END;
CREATE TRIGGER guard_late BEFORE INSERT ON guard WHEN (SELECT filed FROM experiment WHERE key = new.experiment) = 1
BEGIN SELECT RAISE(ABORT, 'refused: a filed experiment is not edited; rerun it'); END;
CREATE TRIGGER guard_kept BEFORE UPDATE ON guard
BEGIN SELECT RAISE(ABORT, 'refused: a guard''s value is not edited; rerun the experiment'); END;
CREATE TRIGGER guard_gone BEFORE DELETE ON guard WHEN (SELECT filed FROM experiment WHERE key = old.experiment) = 1
BEGIN SELECT RAISE(ABORT, 'refused: a filed experiment is not edited; rerun it'); END;
CREATE TRIGGER verdict_kept BEFORE UPDATE ON verdict
BEGIN SELECT RAISE(ABORT, 'refused: a verdict is not edited; rerun the experiment'); END;
CREATE TRIGGER verdict_gone BEFORE DELETE ON verdict
BEGIN SELECT RAISE(ABORT, 'refused: a verdict is not deleted'); END;

-- 9. An edge may not say what no verdict says.
CREATE TRIGGER edge_supports BEFORE INSERT ON edge
WHEN new.type IN ('supports', 'refutes') AND EXISTS (SELECT 1 FROM experiment e WHERE e.key = new.src)
     AND NOT EXISTS (SELECT 1 FROM verdict v JOIN experiment e ON e.key = v.experiment WHERE v.experiment = new.src AND e.quarantined IS NULL
                     AND v.verdict = CASE new.type WHEN 'supports' THEN 'supported' ELSE 'refuted' END)
BEGIN SELECT RAISE(ABORT, 'refused: no verdict says so'); END;

-- Best verified experiment of a lane at a scope: gates passed, better than its baseline beyond noise, measured, not quarantined.
-- Verdict and frontier are separate: what counts is that it is faster and sound, not that its story was right.
CREATE VIEW frontier AS
SELECT lane, scope, experiment, configuration, speedup_vs_reference FROM (
  SELECT e.lane, e.scope, e.key AS experiment, e.configuration, coalesce(c.speedup_vs_reference, 1.0) AS speedup_vs_reference,
         row_number() OVER (PARTITION BY e.lane, e.scope ORDER BY coalesce(c.speedup_vs_reference, 1.0) DESC, e.key) AS place
  FROM experiment e
  LEFT JOIN comparison c ON c.experiment = e.key
  LEFT JOIN verdict v ON v.experiment = e.key
  WHERE e.filed = 1 AND e.quarantined IS NULL AND e.outcome = 'completed' AND e.origin = 'local'
    AND NOT EXISTS (SELECT 1 FROM gate g WHERE g.experiment = e.key AND g.result = 'fail')
    AND NOT EXISTS (SELECT 1 FROM lane_gate lg WHERE lg.lane = e.lane AND lg.mandatory = 1 AND e.role = 'trial'
                    AND NOT EXISTS (SELECT 1 FROM gate g WHERE g.experiment = e.key AND g.name = lg.gate AND g.result IN ('pass', 'not_applicable')))
    AND NOT EXISTS (SELECT 1 FROM guard g WHERE g.experiment = e.key AND g.ok = 0)
    AND (e.role = 'reference' OR (v.verdict <> 'invalid' AND v.kind = 'measured' AND c.ci_low > 1 AND c.speedup > 1 + c.noise_floor_frac))
) WHERE place = 1;
