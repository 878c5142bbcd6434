-- The graph: one node a thing, one edge a relation, both with provenance; text search beside them.
-- Integer keys join, text ids are what people and pages say. `words` holds the name split on case, `_` and `.`.

CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;

CREATE TABLE node (
  key        INTEGER PRIMARY KEY,
  id         TEXT NOT NULL UNIQUE CHECK (length(id) > 0),
  kind       TEXT NOT NULL,
  name       TEXT NOT NULL,
  words      TEXT NOT NULL DEFAULT '',
  doc        TEXT NOT NULL DEFAULT '',
  source     INTEGER REFERENCES node(key),   -- the source it was read from
  file       INTEGER REFERENCES node(key),   -- the file whose bytes it stands on
  line_start INTEGER,
  line_end   INTEGER,
  data       TEXT CHECK (data IS NULL OR json_valid(data)),
  made_by    TEXT NOT NULL CHECK (length(made_by) > 0),   -- provenance: which part of kgagent, or which person
  CHECK (line_start IS NULL OR (line_start >= 1 AND line_end >= line_start))
) STRICT;
CREATE INDEX node_kind ON node(kind, name);
CREATE INDEX node_file ON node(file, line_start) WHERE file IS NOT NULL;
CREATE INDEX node_source ON node(source) WHERE source IS NOT NULL;

CREATE TABLE edge (
  key     INTEGER PRIMARY KEY,
  src     INTEGER NOT NULL REFERENCES node(key) ON DELETE CASCADE,
  type    TEXT NOT NULL,
  dst     INTEGER NOT NULL REFERENCES node(key) ON DELETE CASCADE,
  file    INTEGER REFERENCES node(key) ON DELETE CASCADE,   -- where the relation stands, if it stands in a file
  line    INTEGER NOT NULL DEFAULT 0,                        -- 0: no line
  how     TEXT NOT NULL DEFAULT 'exact',
  made_by TEXT NOT NULL CHECK (length(made_by) > 0),
  data    TEXT CHECK (data IS NULL OR json_valid(data)),
  CHECK (how IN ('exact', 'alias', 're-export', 'inferred', 'candidate', 'unresolved', 'detector', 'rule', 'human'))
) STRICT;
CREATE UNIQUE INDEX edge_out ON edge(src, type, dst, line);
CREATE INDEX edge_in ON edge(dst, type, src);
CREATE INDEX edge_file ON edge(file) WHERE file IS NOT NULL;

-- A source is a repository, package or folder at a revision; `locator` is what a person typed.
CREATE TABLE source (
  key         INTEGER PRIMARY KEY REFERENCES node(key) ON DELETE CASCADE,
  locator     TEXT NOT NULL UNIQUE,
  root        TEXT NOT NULL,              -- folder the paths are relative to
  revision    TEXT NOT NULL,
  ingested_at TEXT NOT NULL,
  data        TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(data))
) STRICT;

CREATE TABLE file (
  key      INTEGER PRIMARY KEY REFERENCES node(key) ON DELETE CASCADE,
  source   INTEGER NOT NULL REFERENCES source(key) ON DELETE CASCADE,
  path     TEXT NOT NULL,                 -- relative to source.root, forward slashes
  sha      TEXT NOT NULL,                 -- SHA-256 of the bytes; also their name in raw/objects
  bytes    INTEGER NOT NULL,
  mtime_ns INTEGER NOT NULL,
  status   TEXT NOT NULL CHECK (status IN ('ok', 'partial', 'skipped')),
  reason   TEXT NOT NULL DEFAULT '',
  facts    BLOB,                          -- what the parser read, compressed; lets one edit be resolved without parsing the rest
  UNIQUE (source, path)
) STRICT;

-- A Pallas launch with what it was tied to; `*_how` says by which kind of resolution.
CREATE TABLE kernel (
  key         INTEGER PRIMARY KEY REFERENCES node(key) ON DELETE CASCADE,
  api         TEXT NOT NULL,              -- resolved dotted name of the launching function
  backend     TEXT NOT NULL CHECK (backend IN ('mosaic_tpu', 'mosaic_gpu', 'triton', 'interpret', 'unresolved')),
  backend_how TEXT NOT NULL,
  launch_file INTEGER NOT NULL REFERENCES node(key),
  launch_line INTEGER NOT NULL,
  wrapper     INTEGER REFERENCES node(key),
  body        INTEGER REFERENCES node(key),
  body_how    TEXT NOT NULL,
  body_text   TEXT NOT NULL DEFAULT '',
  grid        TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX kernel_wrapper ON kernel(wrapper);
CREATE INDEX kernel_body ON kernel(body);
CREATE INDEX kernel_launch ON kernel(launch_file, launch_line);

-- One sentence about performance; without a citation it is not a claim.
CREATE TABLE claim (
  key      INTEGER PRIMARY KEY REFERENCES node(key) ON DELETE CASCADE,
  text     TEXT NOT NULL CHECK (length(trim(text)) > 0),
  op_point TEXT NOT NULL DEFAULT '',
  value    REAL,
  unit     TEXT NOT NULL DEFAULT '',
  status   TEXT NOT NULL CHECK (status IN ('proposed', 'sourced', 'measured', 'contradicted')),
  cited    TEXT NOT NULL CHECK (length(trim(cited)) > 0)
) STRICT;

CREATE VIRTUAL TABLE node_fts USING fts5(name, words, doc, content='node', content_rowid='key', tokenize="unicode61 remove_diacritics 2");
CREATE VIRTUAL TABLE node_trigram USING fts5(id, content='node', content_rowid='key', tokenize='trigram', detail='none');

CREATE TRIGGER node_text_insert AFTER INSERT ON node BEGIN
  INSERT INTO node_fts(rowid, name, words, doc) VALUES (new.key, new.name, new.words, new.doc);
  INSERT INTO node_trigram(rowid, id) VALUES (new.key, new.id);
END;
CREATE TRIGGER node_text_delete AFTER DELETE ON node BEGIN
  INSERT INTO node_fts(node_fts, rowid, name, words, doc) VALUES ('delete', old.key, old.name, old.words, old.doc);
  INSERT INTO node_trigram(node_trigram, rowid, id) VALUES ('delete', old.key, old.id);
END;
CREATE TRIGGER node_text_update AFTER UPDATE OF name, words, doc, id ON node
WHEN old.name IS NOT new.name OR old.words IS NOT new.words OR old.doc IS NOT new.doc OR old.id IS NOT new.id BEGIN
  INSERT INTO node_fts(node_fts, rowid, name, words, doc) VALUES ('delete', old.key, old.name, old.words, old.doc);
  INSERT INTO node_trigram(node_trigram, rowid, id) VALUES ('delete', old.key, old.id);
  INSERT INTO node_fts(rowid, name, words, doc) VALUES (new.key, new.name, new.words, new.doc);
  INSERT INTO node_trigram(rowid, id) VALUES (new.key, new.id);
END;
