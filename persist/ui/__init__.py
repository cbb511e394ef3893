"""Pages over a store, for people: what runs, what waits for whom, what was said, what it cost. `persist ui` serves them.

`create_app(store)` is an ASGI application that any host can mount.
"""

try:
    import jinja2 as jinja2
    import markdown_it as markdown_it
    import nh3 as nh3
    import starlette as starlette
except ImportError as error:
    raise ImportError("persist.ui needs the parts of its pages: pip install 'agent-persist[ui]'.") from error

from persist.ui.app import create_app as create_app

__all__ = ["create_app"]
