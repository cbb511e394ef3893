"""Names, texts and bodies of functions in SQL that is written out, where no parameter can be given."""


def quoted(name: str) -> str:
    """The name as an identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """The text as a literal in SQL, whatever the server takes a backslash for."""
    said = text.replace("'", "''")
    return " E'" + said.replace("\\", "\\\\") + "'" if "\\" in said else f"'{said}'"


def body(code: str) -> str:
    """The code as the body of a function or of DO, between dollar quotes that no name in it ends."""
    tags = ("$$", *(f"$body{number}$" for number in range(len(code))))
    tag = next(tag for tag in tags if tag not in code)
    return f"{tag} {code} {tag}"
