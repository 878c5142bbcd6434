-- What ingest remembers between runs: the module each file is, what other files can see of it, and who looked.
-- A changed surface is resolved again only where somebody depended on it.

CREATE TABLE module (
  file    INTEGER PRIMARY KEY REFERENCES file(key) ON DELETE CASCADE,
  source  INTEGER NOT NULL REFERENCES source(key) ON DELETE CASCADE,
  name    TEXT NOT NULL,                  -- dotted
  surface BLOB NOT NULL                   -- compressed JSON, see kgagent/ingest/facts.py
) STRICT;
CREATE INDEX module_name ON module(name);

-- `module` is a dotted name looked up while resolving `file`; for a name no source defines, its first part.
CREATE TABLE depends (
  module TEXT NOT NULL,
  file   INTEGER NOT NULL REFERENCES file(key) ON DELETE CASCADE,
  PRIMARY KEY (module, file)
) STRICT, WITHOUT ROWID;
CREATE INDEX depends_file ON depends(file);
