"""What an engine means when a container did not come to run: its command, or the container itself."""

REFUSED, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127

# runc, crun and the engines above them, in small letters: what they say only of the program to be run.
_OF_THE_PROGRAM = ("exec: ", "executable", "to invoke a command that")


def code_for(text: str) -> int:
    """As the engines' own command lines end. A missing device or folder is 'no such file', too."""
    said = text.lower()
    if not any(words in said for words in _OF_THE_PROGRAM):
        return REFUSED
    if "not found" in said or "no such file" in said:
        return NOT_FOUND
    if "permission denied" in said or "is a directory" in said or "not a regular file" in said:
        return NOT_EXECUTABLE
    return REFUSED


def why_refused(text: str) -> str:
    """What an engine's words mean, where they do not say it; '' for most."""
    if "device driver" in text and "gpu" in text:
        return ": there is no NVIDIA runtime here (nvidia-container-toolkit)"
    return ""
