-- What insert-time rules say must stay true afterwards: an UPDATE is no way round them.

-- What was predicted is not rewritten once it is known how it went; a hypothesis only moves on in its status.
CREATE TRIGGER hypothesis_kept BEFORE UPDATE ON hypothesis
WHEN old.lane <> new.lane OR old.scope <> new.scope OR old.configuration <> new.configuration OR old.lever <> new.lever OR old.statement <> new.statement
     OR old.mechanism <> new.mechanism OR old.predicted_signal <> new.predicted_signal OR old.falsification <> new.falsification
     OR old.origin <> new.origin OR old.expected_gain IS NOT new.expected_gain OR old.prior IS NOT new.prior OR old.whats_new <> new.whats_new
     OR old.created_at <> new.created_at
BEGIN SELECT RAISE(ABORT, 'refused: a hypothesis is not rewritten; propose another that says what is new'); END;
CREATE TRIGGER hypothesis_gone BEFORE DELETE ON hypothesis WHEN EXISTS (SELECT 1 FROM experiment e WHERE e.hypothesis = old.key)
BEGIN SELECT RAISE(ABORT, 'refused: a hypothesis that was tried is not deleted'); END;

-- A scope and a configuration are what their digests say.
CREATE TRIGGER scope_kept BEFORE UPDATE ON scope
BEGIN SELECT RAISE(ABORT, 'refused: a scope is not edited; another scope is another row'); END;
CREATE TRIGGER configuration_kept BEFORE UPDATE ON configuration
BEGIN SELECT RAISE(ABORT, 'refused: a configuration is not edited; another configuration is another row'); END;
CREATE TRIGGER lane_kind_kept BEFORE UPDATE OF kind ON lane
WHEN new.kind <> old.kind AND EXISTS (SELECT 1 FROM experiment e WHERE e.lane = old.key)
BEGIN SELECT RAISE(ABORT, 'refused: a lane with experiments keeps its kind; name a new lane'); END;

-- A ruling is made or withdrawn, never turned into another.
CREATE TRIGGER ruling_kept BEFORE UPDATE ON ruling
BEGIN SELECT RAISE(ABORT, 'refused: a ruling is not edited'); END;

-- The text that readers see of a filed experiment is part of it, and what it supports is not turned round.
CREATE TRIGGER node_filed BEFORE UPDATE OF id, kind, name, doc, data ON node
WHEN old.kind IN ('experiment', 'verdict', 'measurement')
     AND (old.id <> new.id OR old.kind <> new.kind OR old.name <> new.name OR old.doc <> new.doc OR old.data IS NOT new.data)
     AND EXISTS (SELECT 1 FROM experiment e JOIN node x ON x.key = e.key WHERE e.filed = 1 AND (
       e.key = old.key OR EXISTS (SELECT 1 FROM edge p WHERE p.src = e.key AND p.dst = old.key AND p.type = 'produced')))
BEGIN SELECT RAISE(ABORT, 'refused: a filed experiment is not edited; rerun it'); END;
CREATE TRIGGER edge_verdict_changed BEFORE UPDATE OF src, dst, type ON edge
WHEN (new.type IN ('supports', 'refutes') OR old.type IN ('supports', 'refutes')) AND (old.src <> new.src OR old.dst <> new.dst OR old.type <> new.type)
     AND (EXISTS (SELECT 1 FROM experiment e WHERE e.key = new.src) OR EXISTS (SELECT 1 FROM experiment e WHERE e.key = old.src))
BEGIN SELECT RAISE(ABORT, 'refused: what an experiment supports or refutes is not edited'); END;
CREATE TRIGGER edge_other_verdict BEFORE INSERT ON edge
WHEN new.type IN ('supports', 'refutes') AND EXISTS (SELECT 1 FROM experiment e WHERE e.key = new.src)
     AND (SELECT n.kind FROM node n WHERE n.key = new.dst) = 'hypothesis'
     AND NOT EXISTS (SELECT 1 FROM experiment e WHERE e.key = new.src AND e.hypothesis = new.dst)
BEGIN SELECT RAISE(ABORT, 'refused: an experiment speaks of its own hypothesis'); END;

-- Merged stays merged by what merged it.
CREATE TRIGGER experiment_merger_kept BEFORE UPDATE OF merged_by, merge_state ON experiment
WHEN old.merge_state = 'merged' AND (new.merge_state <> 'merged' OR new.merged_by IS NOT old.merged_by)
BEGIN SELECT RAISE(ABORT, 'refused: a merged experiment stays merged by what merged it'); END;
