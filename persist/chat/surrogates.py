"""Text that JavaScript cut between the two UTF-16 halves of one character."""


def has_halves(text: str) -> bool:
    """True when the text contains a surrogate half, which UTF-8 cannot carry."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def join_halves(text: str) -> str:
    """Join adjacent surrogate halves to the character they spell; a half that is still alone stays."""
    if not has_halves(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
