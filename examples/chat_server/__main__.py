"""Runs the chat on this machine: `python -m examples.chat_server`, then open the address that it prints."""

import argparse
import os
import socket
from contextlib import suppress

try:
    import uvicorn
    from fastapi import FastAPI

    from .assistant import assistant
    from .scripted_model import scripted_model
    from .server import PAGE, application
except ImportError as missing:
    raise SystemExit(f"{missing}. `make chat` installs what the chat needs and starts it") from None


def serve(app: FastAPI, port: int, *, patience: int = 5) -> None:
    """Serve the application until a signal ends it, and give answers so many seconds then. Port 0 is any that is free."""
    with socket.create_server(("127.0.0.1", port)) as listening:  # this machine alone: there is no login
        print(f"http://127.0.0.1:{listening.getsockname()[1]}/", flush=True)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=patience))
        with suppress(KeyboardInterrupt):  # Ctrl-C, after the server has ended
            server.run(sockets=[listening])


def main() -> None:
    """Read the options and serve."""
    options = argparse.ArgumentParser(description=__doc__)
    url = os.environ.get("PERSIST_DATABASE_URL", "sqlite:///chat.db")
    options.add_argument("--url", default=url, help="sqlite:///FILE or postgresql://…; PERSIST_DATABASE_URL names it, too")
    options.add_argument("--model", help="a model of Pydantic AI, such as openai:gpt-5, whose key is in the environment")
    options.add_argument("--port", type=int, default=8000, help="0 is any that is free")
    given = options.parse_args()
    if not (PAGE / "dist" / "page.js").exists():
        options.exit(1, f"The page is not built yet: run `npm install && npm run build` in {PAGE}.\n")
    serve(application(given.url, assistant(given.model or scripted_model())), given.port)


if __name__ == "__main__":
    main()
