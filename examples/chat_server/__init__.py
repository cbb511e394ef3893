"""A chat product in small, run by `python -m examples.chat_server`: FastAPI, useChat of the AI SDK, Pydantic AI, persist."""
