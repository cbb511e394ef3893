"""The reducer against what the real ones of both majors made of random streams: `python -m tests.streams.differential FILE`.

The file comes from `node differential.mjs FILE 4000`. Not a test: it needs node, and minutes.
"""

import json
import sys
from pathlib import Path
from typing import Any

from persist.chat.reducer.accumulator import Accumulator
from persist.errors import PersistError, StreamProtocolError
from persist.settings import AiSdk


def difference(stream: dict[str, Any], major: AiSdk) -> str | None:
    """Where the reducer and the SDK part, in a few words; None when they do not."""
    reading = stream["readings"][str(int(major))]
    expected = {cut["consumed"]: cut["message"] for cut in reading["cuts"]}
    accumulator = Accumulator(stream.get("initial"), major)
    for consumed, chunk in enumerate(stream["chunks"], start=1):
        try:
            accumulator.apply(chunk)
        except StreamProtocolError:
            return None if consumed - 1 == reading["readable"] else f"chunk {consumed} is refused"
        except PersistError as error:
            return f"chunk {consumed} is invalid: {error}"
        if accumulator.aborted:
            return None  # the SDK goes on
        if consumed > reading["readable"]:
            return f"chunk {consumed} is taken, and the SDK refuses it"
        if consumed in expected and accumulator.message() != expected[consumed]:
            return f"after {consumed} it is {accumulator.message()}, and the SDK's {expected[consumed]}"
    return None


def main(file: str) -> int:
    """Print every difference, and how much was compared."""
    streams = cuts = differences = 0
    with Path(file).open(encoding="utf-8") as lines:
        for line in lines:
            stream = json.loads(line)
            streams += 1
            for major in AiSdk:
                cuts += len(stream["readings"][str(int(major))]["cuts"])
                if (found := difference(stream, major)) is not None:
                    differences += 1
                    print(f"seed {stream['seed']}, AI SDK {int(major)}: {found[:600]}")
    print(f"{streams} streams, {cuts} states compared with AI SDK 6 and 7, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
