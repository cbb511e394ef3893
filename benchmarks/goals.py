"""What must be reached, in the order of the page. A ratio says how many times the alternative it may cost."""

from dataclasses import dataclass

from benchmarks.measure import Row


@dataclass(frozen=True)
class Goal:
    """One line of the first table."""

    key: str
    what: str
    at_most: float
    unit: str = "x"


_ANSWER = "40 KB answer in 20-character chunks, a commit each"
_LIST = "newest 20 of 1,000,000 runs"
_JOB = "500 messages, a commit each, and read back"
_THREAD = "LangGraph: put and get of 150 checkpoints"
_CHAT = "LangGraph: checkpoints of a chat of 150 turns"
_TASKS = "LangGraph: checkpoints of 50 tasks at once, 5 times"
_HISTORY = "LangGraph: list of 33 checkpoints of a thread with 10,000 messages"
_ITEMS = "OpenAI Agents: 500 items added one by one and read"
_EMPTY = "Postgres: claim and end of an empty run"
_CLAIM = "Postgres: a claim of a queued run"
_LARGE = "100,000 runs, 30,000 chats and 300,000 parts"
GOALS = (
    Goal("stream", f"{_ANSWER}, vs raw in-place rewrite", 0.35),
    Goal("stream-postgres", f"Postgres: {_ANSWER}, vs raw delta rows", 1.15),
    Goal("late-chunk", "chunk at 40 KB vs at 1 KB", 1.2),
    Goal("wal", "write-ahead log per commit of a chunk", 5.0, " KB"),
    Goal("observed-chunk", "durable chunk, traced and measured by OpenTelemetry vs not", 1.15),
    Goal("async-1", "acknowledged chunk of an `AsyncStore`, 1 stream, vs an inline raw rewrite of a 2 KB part", 1.8),
    Goal("async-16", "the same, 16 streams together", 1.0),
    Goal("chunk-postgres", "Postgres: durable chunk vs raw delta insert", 1.15),
    Goal("async-32-postgres", "Postgres: 32 async streams together, per chunk, vs one raw delta insert", 0.2),
    Goal("list-growth", f"{_LIST} vs of 1,000", 1.2),
    Goal("list-values", f"{_LIST}, as values, vs a query by hand to frozen Pydantic values", 2.0),
    Goal("list-rows", f"{_LIST}, as rows, vs the rows of a query by hand", 1.5),
    Goal("list-growth-postgres", f"Postgres: {_LIST} vs of 1,000", 1.2),
    Goal("list-values-postgres", f"Postgres: {_LIST}, as values, vs a query by hand to frozen Pydantic values", 2.0),
    Goal("list-rows-postgres", f"Postgres: {_LIST}, as rows, vs the rows of a query by hand", 1.5),
    Goal("claims-growth", f"{_CLAIM}, 32 workers together, 10,000 queued among 1,000,000 finished vs among 1,000", 1.2),
    Goal("claims-workers", f"{_CLAIM}, 16 workers together vs one", 1.0),
    Goal("queue-procrastinate-1", f"{_EMPTY}, 1 worker, vs procrastinate", 1.0),
    Goal("queue-dbos-1", f"{_EMPTY}, 1 worker, vs DBOS", 1.0),
    Goal("queue-procrastinate-16", f"{_EMPTY}, 16 workers, vs procrastinate", 1.0),
    Goal("queue-dbos-16", f"{_EMPTY}, 16 workers, vs DBOS", 1.0),
    Goal("wire", "500 messages x 5 parts to JSON, vs raw rows and orjson", 0.8),
    Goal("dicts", "500 messages x 5 parts to dicts, vs raw rows and orjson", 1.2),
    Goal("append-growth", "append to a progression of 50,000 vs of 500", 1.5),
    Goal("fork", "fork of a branch vs the statements by hand", 1.5),
    Goal("open", "opening a current file", 1.0, " ms"),
    Goal("start", "`import persist; persist.Store` in a new interpreter, above `import sqlalchemy.orm, pydantic`", 30.0, " ms"),
    Goal("create", "making a new file", 10.0, " ms"),
    Goal("job-peers", f"{_JOB}, vs the fastest peer", 1.0),
    Goal("job-raw", f"{_JOB}, vs raw statements on the same tables", 1.3),
    Goal("job-peers-postgres", f"Postgres: {_JOB}, vs the fastest peer", 1.0),
    Goal("job-raw-postgres", f"Postgres: {_JOB}, vs raw statements on the same tables", 1.3),
    Goal("langgraph", f"{_THREAD}, vs SqliteSaver", 1.0),
    Goal("langgraph-equal", f"{_THREAD}, vs SqliteSaver at our durability", 1.0),
    Goal("langgraph-bytes", "LangGraph: bytes of 500 checkpoints with a growing list, vs SqliteSaver", 0.1),
    Goal("langgraph-postgres", f"Postgres: {_THREAD}, vs PostgresSaver", 1.0),
    Goal("chat", f"{_CHAT}, vs SqliteSaver", 1.0),
    Goal("chat-equal", f"{_CHAT}, vs SqliteSaver at our durability", 1.0),
    Goal("chat-postgres", f"Postgres: {_CHAT}, vs PostgresSaver", 1.0),
    Goal("fan-out", f"{_TASKS}, vs SqliteSaver", 1.0),
    Goal("fan-out-equal", f"{_TASKS}, vs SqliteSaver at our durability", 1.0),
    Goal("fan-out-postgres", f"Postgres: {_TASKS}, vs PostgresSaver", 1.0),
    Goal("history", f"{_HISTORY}, vs SqliteSaver", 1.0),
    Goal("history-equal", f"{_HISTORY}, vs SqliteSaver at our durability", 1.0),
    Goal("history-postgres", f"Postgres: {_HISTORY}, vs PostgresSaver", 1.0),
    Goal("agents", f"{_ITEMS}, vs SQLAlchemySession", 1.0),
    Goal("agents-own", f"{_ITEMS}, vs our own `chat.messages`", 1.5),
    Goal("agents-postgres", f"Postgres: {_ITEMS}, vs SQLAlchemySession", 1.0),
    Goal("agents-own-postgres", f"Postgres: {_ITEMS}, vs our own `chat.messages`", 1.5),
    Goal("pages-lists", f"pages over {_LARGE}: the list that costs most, vs its verbs", 3.0),
    Goal("pages-growth", "pages: the list that grows most, vs over 1,000 runs", 1.2),
    Goal("pages-home", "pages: the first one", 100.0, " ms"),
    Goal("pages-transcript", "pages: the newest 100 messages of a transcript of 500", 150.0, " ms"),
    Goal("pages-chunk", "pages: from a chunk to the event in a browser's stream, p99", 150.0, " ms"),
    Goal("pages-idle", "pages: 100 viewers of silent chats, of one core", 2.0, " %"),
    Goal("pages-memory", "pages: what 100 such viewers add to the server", 60.0, " MB"),
    Goal("pages-first", "pages: a first visit, compressed, with all that it names", 120.0, " KB"),
    Goal("pages-lists-postgres", f"Postgres: pages over {_LARGE}: the list that costs most, vs its verbs", 3.0),
    Goal("pages-growth-postgres", "Postgres: pages: the list that grows most, vs over 1,000 runs", 1.2),
    Goal("pages-home-postgres", "Postgres: pages: the first one", 100.0, " ms"),
    Goal("pages-transcript-postgres", "Postgres: pages: the newest 100 messages of a transcript of 500", 150.0, " ms"),
    Goal("pages-chunk-postgres", "Postgres: pages: from a chunk to the event in a browser's stream, p99", 150.0, " ms"),
    Goal("pages-idle-postgres", "Postgres: pages: 100 viewers of silent chats, of one core", 2.0, " %"),
    Goal("pages-memory-postgres", "Postgres: pages: what 100 such viewers add to the server", 60.0, " MB"),
    Goal("memory-recording", "memory to record an answer of 10 MB, vs one of 2.5 MB", 1.25),
    Goal("memory-copying", "memory to copy 80,000 rows, vs 20,000", 1.25),
    Goal("memory-exporting", "memory to export 80,000 rows, vs 20,000", 1.25),
    Goal("memory-tailing", "memory to tail a session log of 40 MB, vs one of 10 MB", 1.25),
)
_BY_KEY = {goal.key: goal for goal in GOALS}


def reached(key: str, value: float, detail: str) -> Row:
    """The row of a goal."""
    goal = _BY_KEY[key]
    return Row(goal.what, value, goal.at_most, detail, goal.unit, key)
