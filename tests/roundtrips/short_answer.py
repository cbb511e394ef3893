"""A whole short answer as a model streams it."""

SHORT_ANSWER = (
    {"type": "start"},
    {"type": "text-start", "id": "t"},
    {"type": "text-delta", "id": "t", "delta": "Yes."},
    {"type": "text-end", "id": "t"},
    {"type": "finish"},
)
