"""The tables that other systems make, as their published schemas and releases have them, in words of our own.

Each is a script that makes the tables of one system; those of `EXTRAS` are nobody's but that system's.
"""

FIRST_WORKFLOWS = """
CREATE TABLE executions (
    id TEXT PRIMARY KEY, trigger_type TEXT NOT NULL, trigger_id TEXT NOT NULL, skill TEXT NOT NULL, repo TEXT,
    issue_number INTEGER, started_at TEXT NOT NULL, finished_at TEXT, success INTEGER, error TEXT, turns INTEGER,
    duration_ms INTEGER
);
CREATE INDEX idx_executions_trigger ON executions(trigger_type, trigger_id);
CREATE TABLE workflow_runs (
    id TEXT PRIMARY KEY, workflow_name TEXT NOT NULL, trigger_id TEXT NOT NULL, repo TEXT, issue_number INTEGER,
    current_phase TEXT NOT NULL, phase_history TEXT NOT NULL DEFAULT '[]', status TEXT NOT NULL DEFAULT 'running',
    context TEXT, started_at TEXT NOT NULL, finished_at TEXT
);
CREATE INDEX idx_workflow_runs_status ON workflow_runs(status);
CREATE TABLE messaging_sessions (
    id TEXT PRIMARY KEY, platform TEXT NOT NULL, channel_id TEXT NOT NULL,
    thread_id TEXT, -- none outside of threads, UNIQUE(nothing)
    user_id TEXT NOT NULL, created_at TEXT NOT NULL, last_activity_at TEXT NOT NULL,
    message_count INTEGER DEFAULT 0, active INTEGER DEFAULT 1, "extra, (column)" TEXT DEFAULT 'a,b)',
    UNIQUE(platform, channel_id, thread_id, user_id)
);
CREATE INDEX idx_own ON messaging_sessions("extra, (column)");
CREATE TRIGGER noted AFTER UPDATE ON messaging_sessions BEGIN INSERT INTO notes VALUES (NEW.id); END;
CREATE TABLE messaging_messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL REFERENCES messaging_sessions(id), role TEXT NOT NULL,
    content TEXT NOT NULL, timestamp TEXT NOT NULL, platform_message_id TEXT
);
CREATE TABLE notes (session_id TEXT);
CREATE VIEW active_sessions AS SELECT id FROM messaging_sessions WHERE active = 1;
"""

WORKFLOWS = """
CREATE TABLE executions (
    id TEXT PRIMARY KEY, trigger_type TEXT NOT NULL, trigger_id TEXT NOT NULL, skill TEXT NOT NULL, repo TEXT,
    issue_number INTEGER, started_at TEXT NOT NULL, finished_at TEXT, success INTEGER, error TEXT, turns INTEGER,
    duration_ms INTEGER, session_id TEXT, cost_usd REAL, input_tokens INTEGER, cache_creation_input_tokens INTEGER,
    cache_read_input_tokens INTEGER, output_tokens INTEGER, api_duration_ms INTEGER, stop_reason TEXT, workflow_run_id TEXT,
    output_text TEXT
);
CREATE INDEX idx_executions_trigger ON executions(trigger_type, trigger_id);
CREATE INDEX idx_executions_skill ON executions(skill, started_at);
CREATE INDEX idx_executions_workflow_run ON executions(workflow_run_id);
CREATE TABLE workflow_runs (
    id TEXT PRIMARY KEY, workflow_name TEXT NOT NULL, trigger_id TEXT NOT NULL, repo TEXT, issue_number INTEGER,
    current_phase TEXT NOT NULL, phase_history TEXT NOT NULL DEFAULT '[]', status TEXT NOT NULL DEFAULT 'running',
    context TEXT, scratch TEXT, node_statuses TEXT, restart_count INTEGER NOT NULL DEFAULT 0, started_at TEXT NOT NULL,
    updated_at TEXT NOT NULL, finished_at TEXT
);
CREATE INDEX idx_workflow_runs_trigger ON workflow_runs(trigger_id, status);
CREATE INDEX idx_workflow_runs_status ON workflow_runs(status);
CREATE INDEX idx_workflow_runs_started_at ON workflow_runs(started_at DESC);
CREATE TABLE workflow_approvals (
    id TEXT PRIMARY KEY, workflow_run_id TEXT NOT NULL, gate TEXT NOT NULL, summary TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'pending', kind TEXT NOT NULL DEFAULT 'approve', requested_by TEXT, responded_by TEXT,
    response TEXT, responded_at TEXT, created_at TEXT NOT NULL
);
CREATE TABLE cron_overrides (
    name TEXT PRIMARY KEY, enabled INTEGER NOT NULL DEFAULT 1, schedule TEXT, updated_at TEXT NOT NULL, updated_by TEXT
);
CREATE TABLE workflow_overrides (
    name TEXT PRIMARY KEY, enabled INTEGER NOT NULL DEFAULT 1, updated_at TEXT NOT NULL, updated_by TEXT
);
CREATE TABLE messaging_sessions (
    id TEXT PRIMARY KEY, platform TEXT NOT NULL, channel_id TEXT NOT NULL, thread_id TEXT, user_id TEXT NOT NULL,
    agent_session_id TEXT, created_at TEXT NOT NULL, last_activity_at TEXT NOT NULL, message_count INTEGER DEFAULT 0,
    active INTEGER DEFAULT 1
);
CREATE INDEX idx_msg_sessions_lookup ON messaging_sessions(platform, channel_id, thread_id, user_id);
CREATE UNIQUE INDEX idx_msg_sessions_unique_active ON messaging_sessions(platform, channel_id, thread_id, user_id)
    WHERE active = 1;
CREATE TABLE messaging_messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL REFERENCES messaging_sessions(id), role TEXT NOT NULL,
    content TEXT NOT NULL, timestamp TEXT NOT NULL, platform_message_id TEXT
);
CREATE INDEX idx_msg_messages_session ON messaging_messages(session_id, timestamp);
"""

CONVERSATIONS = """
CREATE TABLE schema_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO schema_meta VALUES ('version', '1');
CREATE TABLE message_types (type_id INTEGER PRIMARY KEY, lion_class TEXT NOT NULL UNIQUE);
CREATE TABLE messages (
    id TEXT PRIMARY KEY, created_at REAL NOT NULL, node_metadata JSON, content JSON NOT NULL, embedding BLOB, sender TEXT,
    recipient TEXT, channel TEXT, role TEXT NOT NULL, lion_class INTEGER NOT NULL REFERENCES message_types(type_id)
);
CREATE INDEX idx_messages_sender ON messages(sender) WHERE sender IS NOT NULL;
CREATE TABLE progressions (id TEXT PRIMARY KEY, created_at REAL NOT NULL, collection TEXT NOT NULL DEFAULT '[]');
CREATE TABLE invocations (id TEXT PRIMARY KEY, skill TEXT NOT NULL);
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, created_at REAL NOT NULL, node_metadata JSON, name TEXT, user TEXT,
    progression_id TEXT NOT NULL REFERENCES progressions(id), first_msg_id TEXT REFERENCES messages(id),
    last_msg_id TEXT REFERENCES messages(id), updated_at REAL NOT NULL, playbook_name TEXT, agent_name TEXT,
    invocation_kind TEXT CHECK (invocation_kind IS NULL OR invocation_kind IN ('agent', 'play', 'flow', 'fanout', 'show-play')),
    show_topic TEXT, show_play_name TEXT, artifacts_path TEXT,
    source_kind TEXT DEFAULT 'live' CHECK (source_kind IS NULL OR source_kind IN ('live', 'imported_fs')), status TEXT,
    started_at REAL, ended_at REAL, invocation_id TEXT REFERENCES invocations(id), total_cost_usd REAL
);
CREATE INDEX idx_sessions_updated ON sessions(updated_at DESC);
CREATE TABLE branches (
    id TEXT PRIMARY KEY, created_at REAL NOT NULL, node_metadata JSON, user TEXT, name TEXT,
    session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    progression_id TEXT NOT NULL REFERENCES progressions(id), system_msg_id TEXT REFERENCES messages(id), model TEXT
);
CREATE TABLE plays (id TEXT PRIMARY KEY, session_id TEXT REFERENCES sessions(id));
"""

NEWER_CONVERSATIONS = (
    CONVERSATIONS.replace("'version', '1'", "'version', '4'")
    .replace("'show-play'", "'show-play', 'engine'")
    .replace("'imported_fs'", "'imported_fs', 'imported_codex'")
    .replace("ended_at REAL, invocation_id", "ended_at REAL, ended_at_is_approximate INTEGER NOT NULL DEFAULT 0, invocation_id")
    .replace("model TEXT\n", "model TEXT, status TEXT, started_at REAL, ended_at REAL\n")
    + """
CREATE TABLE status_transitions (
    id TEXT PRIMARY KEY, entity_type TEXT NOT NULL, entity_id TEXT NOT NULL, previous_status TEXT, status TEXT NOT NULL,
    reason_code TEXT NOT NULL, reason_summary TEXT, evidence_refs JSON, source TEXT NOT NULL, actor TEXT,
    created_at REAL NOT NULL, metadata JSON
);
CREATE TABLE run_tags (session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE, tag TEXT NOT NULL,
    PRIMARY KEY (session_id, tag));
"""
)

PROGRAMS = """
CREATE TABLE run (
    id TEXT PRIMARY KEY, program_path TEXT, program_source TEXT, started_at TEXT DEFAULT (datetime('now')),
    updated_at TEXT DEFAULT (datetime('now')), status TEXT DEFAULT 'running', state_mode TEXT DEFAULT 'sqlite'
);
CREATE TABLE execution (
    id INTEGER PRIMARY KEY AUTOINCREMENT, statement_index INTEGER, statement_text TEXT, status TEXT, started_at TEXT,
    completed_at TEXT, error_message TEXT, parent_id INTEGER REFERENCES execution(id), metadata TEXT
);
CREATE TABLE bindings (
    name TEXT NOT NULL, execution_id INTEGER, kind TEXT, value TEXT, source_statement TEXT,
    created_at TEXT DEFAULT (datetime('now')), updated_at TEXT DEFAULT (datetime('now')), attachment_path TEXT,
    PRIMARY KEY (name, execution_id)
);
CREATE TABLE agents (
    name TEXT PRIMARY KEY, scope TEXT, memory TEXT, created_at TEXT DEFAULT (datetime('now')),
    updated_at TEXT DEFAULT (datetime('now'))
);
CREATE TABLE agent_segments (
    id INTEGER PRIMARY KEY AUTOINCREMENT, agent_name TEXT REFERENCES agents(name), segment_number INTEGER,
    timestamp TEXT DEFAULT (datetime('now')), prompt TEXT, summary TEXT, UNIQUE (agent_name, segment_number)
);
CREATE TABLE imports (alias TEXT PRIMARY KEY, source_url TEXT, fetched_at TEXT, inputs_schema TEXT, outputs_schema TEXT);
CREATE TABLE x_metrics (name TEXT, value REAL);
"""

INSTANCE = """
CREATE TABLE status_log (id INTEGER PRIMARY KEY, occurred_at INTEGER NOT NULL, new_status TEXT NOT NULL, metadata TEXT);
CREATE TABLE agent_tags (
    kind TEXT NOT NULL, value TEXT NOT NULL, first_seen INTEGER NOT NULL, last_seen INTEGER NOT NULL, PRIMARY KEY (kind, value)
);
CREATE TABLE github_link_statuses (
    url TEXT PRIMARY KEY, kind TEXT NOT NULL, host TEXT NOT NULL, owner TEXT NOT NULL, repo TEXT NOT NULL,
    resource_number INTEGER NOT NULL, issue_state TEXT, pr_state TEXT, build_state TEXT, review_state TEXT,
    pr_is_draft INTEGER, fetched_at INTEGER NOT NULL, refresh_after INTEGER NOT NULL, last_error TEXT
);
CREATE TABLE usage_samples (
    occurred_at INTEGER PRIMARY KEY, token_input INTEGER, token_output INTEGER, token_cache_read INTEGER,
    token_cache_write INTEGER, cost_usd_micros INTEGER
);
CREATE TABLE tool_history (
    id INTEGER PRIMARY KEY, occurred_at INTEGER NOT NULL, tool_key TEXT NOT NULL, exit_code INTEGER, duration_ms INTEGER
);
CREATE TABLE _meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO _meta VALUES ('schema_version', '3');
CREATE TABLE account_snapshots (id INTEGER PRIMARY KEY, taken_at INTEGER NOT NULL);
"""

CHAT = """
CREATE TABLE chat_sessions (
    id TEXT PRIMARY KEY, title TEXT, agent TEXT NOT NULL, workspace_root TEXT, model_json TEXT NOT NULL, parent_id TEXT,
    parent_message_id TEXT, permissions_json TEXT NOT NULL DEFAULT '[]', metadata_json TEXT NOT NULL DEFAULT '{}',
    prompt_tokens INTEGER NOT NULL DEFAULT 0, completion_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens INTEGER NOT NULL DEFAULT 0, cache_read INTEGER NOT NULL DEFAULT 0, cache_write INTEGER NOT NULL DEFAULT 0,
    total_tokens INTEGER NOT NULL DEFAULT 0, cost_usd REAL NOT NULL DEFAULT 0, created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL, archived_at INTEGER
);
CREATE INDEX sessions_by_parent ON chat_sessions(parent_id);
CREATE TABLE chat_messages (
    id TEXT PRIMARY KEY, session_id TEXT NOT NULL REFERENCES chat_sessions(id) ON DELETE CASCADE, role TEXT NOT NULL,
    metadata_json TEXT NOT NULL DEFAULT '{}', hidden_at INTEGER, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL
);
CREATE TABLE chat_parts (
    id TEXT PRIMARY KEY, message_id TEXT NOT NULL REFERENCES chat_messages(id) ON DELETE CASCADE, session_id TEXT NOT NULL,
    "index" INTEGER NOT NULL, type TEXT NOT NULL, data_json TEXT NOT NULL, tool_call_id TEXT, tool_state TEXT,
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL
);
CREATE INDEX parts_in_order ON chat_parts(message_id, "index");
"""

SYSTEMS = {
    "first-workflows": FIRST_WORKFLOWS,
    "workflows": WORKFLOWS,
    "conversations": CONVERSATIONS,
    "newer-conversations": NEWER_CONVERSATIONS,
    "programs": PROGRAMS,
    "instance": INSTANCE,
    "chat": CHAT,
}
