"""A session of the virtual machine and its subagents at the sqlite3 command line, statement by statement.

The forms are those that programs of this kind are told to use: upserts by INSERT OR REPLACE, JSON in `metadata`, no scope
anywhere. The schema's own statements come first, since a machine runs them without looking whether the tables are there.
"""

SCHEMA = [
    "CREATE TABLE IF NOT EXISTS run (id TEXT PRIMARY KEY, program_path TEXT, program_source TEXT, "
    "started_at TEXT DEFAULT (datetime('now')), updated_at TEXT DEFAULT (datetime('now')), "
    "status TEXT DEFAULT 'running', state_mode TEXT DEFAULT 'sqlite')",
    "CREATE TABLE IF NOT EXISTS execution (id INTEGER PRIMARY KEY AUTOINCREMENT, statement_index INTEGER, "
    "statement_text TEXT, status TEXT, started_at TEXT, completed_at TEXT, error_message TEXT, "
    "parent_id INTEGER REFERENCES execution(id), metadata TEXT)",
    "CREATE TABLE IF NOT EXISTS bindings (name TEXT, execution_id INTEGER, kind TEXT, value TEXT, source_statement TEXT, "
    "created_at TEXT DEFAULT (datetime('now')), updated_at TEXT DEFAULT (datetime('now')), attachment_path TEXT, "
    "PRIMARY KEY (name, IFNULL(execution_id, -1)))",
    "CREATE TABLE IF NOT EXISTS agents (name TEXT PRIMARY KEY, scope TEXT, memory TEXT, "
    "created_at TEXT DEFAULT (datetime('now')), updated_at TEXT DEFAULT (datetime('now')))",
    "CREATE TABLE IF NOT EXISTS agent_segments (id INTEGER PRIMARY KEY AUTOINCREMENT, "
    "agent_name TEXT REFERENCES agents(name), segment_number INTEGER, timestamp TEXT DEFAULT (datetime('now')), "
    "prompt TEXT, summary TEXT, UNIQUE(agent_name, segment_number))",
    "CREATE TABLE IF NOT EXISTS imports (alias TEXT PRIMARY KEY, source_url TEXT, fetched_at TEXT, inputs_schema TEXT, "
    "outputs_schema TEXT)",
]

SCOPE = """
WITH RECURSIVE scope_chain AS (
  SELECT id, parent_id FROM execution WHERE id = {frame}
  UNION ALL
  SELECT e.id, e.parent_id
  FROM execution e
  JOIN scope_chain s ON e.id = s.parent_id
)
SELECT b.* FROM bindings b
LEFT JOIN scope_chain s ON b.execution_id = s.id
WHERE b.name = '{name}'
  AND (b.execution_id IN (SELECT id FROM scope_chain) OR b.execution_id IS NULL)
ORDER BY
  CASE WHEN b.execution_id IS NULL THEN 1 ELSE 0 END,
  s.id DESC NULLS LAST
LIMIT 1;
"""

KNOWN_SCOPE = """
SELECT * FROM bindings
WHERE name = 'result'
  AND (execution_id = 43 OR execution_id = 42 OR execution_id IS NULL)
ORDER BY execution_id DESC NULLS LAST
LIMIT 1;
"""

STATEMENT = """
INSERT INTO execution (statement_index, statement_text, status, started_at)
VALUES (3, 'session "Research AI safety"', 'executing', datetime('now'))
"""

PARALLEL = """
INSERT INTO execution (statement_index, statement_text, status, metadata)
VALUES (5, 'parallel:', 'executing', '{"parallel_id": "p1", "strategy": "all", "branches": ["a", "b", "c"]}');
"""

BRANCH = """
INSERT INTO execution (statement_index, statement_text, status, parent_id, metadata)
VALUES (6, '{name} = session "Task"', 'executing', {parent}, '{{"parallel_id": "p1", "branch": "{name}"}}');
"""

BRANCH_DONE = """
UPDATE execution SET status = 'completed', completed_at = datetime('now')
WHERE json_extract(metadata, '$.parallel_id') = 'p1' AND json_extract(metadata, '$.branch') = 'a';
"""

BRANCH_STATES = """
SELECT statement_text, status FROM execution
WHERE json_extract(metadata, '$.parallel_id') = 'p1'
"""

PENDING = """
SELECT COUNT(*) as pending FROM execution
WHERE json_extract(metadata, '$.parallel_id') = 'p1' AND status != 'completed';
"""

LOOP = """
INSERT INTO execution (statement_index, statement_text, status, metadata)
VALUES (10, 'loop until **analysis complete** (max: 5):', 'executing',
  '{"loop_id": "l1", "max_iterations": 5, "current_iteration": 0, "condition": "**analysis complete**"}');
"""

ITERATION = """
UPDATE execution
SET metadata = json_set(metadata, '$.current_iteration', 2),
    updated_at = datetime('now')
WHERE json_extract(metadata, '$.loop_id') = 'l1';
"""

FAILURE = """
UPDATE execution
SET status = 'failed',
    error_message = 'Connection timeout after 30s',
    completed_at = datetime('now')
WHERE id = {id};
"""

RETRY = """
UPDATE execution
SET metadata = json_set(metadata, '$.retry_attempt', 2, '$.max_retries', 3)
WHERE id = {id};
"""

BIND = """
INSERT OR REPLACE INTO bindings (name, execution_id, kind, value, source_statement, updated_at)
VALUES (
  '{name}',
  {frame}, -- the scope
  'let',
  '{value}',
  'let {name} = session: researcher',
  datetime('now')
)
"""

LARGE = """
INSERT INTO bindings (name, kind, value, attachment_path, source_statement)
VALUES (
  'full_report',
  'let',
  'Full analysis report (847KB) - see attachment',
  'attachments/full_report.md',
  'let full_report = session "Generate comprehensive report"'
);
"""

READ = "SELECT value FROM bindings WHERE name = 'research'"
MEMORY = "SELECT memory FROM agents WHERE name = 'captain'"
REMEMBER = "UPDATE agents SET memory = 'the plan', updated_at = datetime('now') WHERE name = 'captain'"
SEGMENT = "INSERT INTO agent_segments (agent_name, segment_number, prompt, summary) VALUES ('captain', 3, 'p', 's')"

POSITION = """
SELECT statement_index, statement_text, status
FROM execution
WHERE status = 'executing'
ORDER BY id DESC LIMIT 1;
"""
ALL_BINDINGS = "SELECT name, kind, value, attachment_path FROM bindings;"
ALL_MEMORIES = "SELECT name, memory FROM agents;"
BLOCK = """
SELECT json_extract(metadata, '$.branch') as branch, status
FROM execution
WHERE json_extract(metadata, '$.parallel_id') IS NOT NULL
  AND parent_id = (SELECT id FROM execution WHERE status = 'executing' AND statement_text LIKE 'parallel:%');
"""

EXTENSIONS = [
    "CREATE TABLE x_metrics (execution_id INTEGER REFERENCES execution(id), metric_name TEXT, metric_value REAL, "
    "recorded_at TEXT DEFAULT (datetime('now')));",
    "ALTER TABLE bindings ADD COLUMN token_count INTEGER;",
    "CREATE INDEX idx_execution_status ON execution(status);",
]
