class ServerContext:
    def __init__(
        self, certificate: str, key: str, password: str = "", trust: str | None = None, requires: bool = False
    ) -> None: ...
