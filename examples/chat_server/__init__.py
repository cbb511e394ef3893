"""A chat product in small: FastAPI, the AI SDK's useChat, Pydantic AI, and persist below them. `python -m examples.chat_server`."""
