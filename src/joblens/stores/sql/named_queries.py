"""SQL lives in .sql files; one query begins at "-- name:" and ends before the next."""

_MARK = "-- name: "


class Queries(dict[str, str]):
    """By name. A wrong name is a KeyError where it is asked for."""

    @classmethod
    def parse(cls, text: str) -> "Queries":
        queries = cls()
        for part in text.split(_MARK)[1:]:
            name, _, body = part.partition("\n")
            lines = [line for line in body.splitlines() if not line.startswith("--")]
            queries[name.strip()] = "\n".join(lines).strip()
        return queries
