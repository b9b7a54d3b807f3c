def encode(
    serialize_type: int,
    code: int,
    opaque: int,
    remark: bytes | None,
    ext_fields: list[tuple[bytes, bytes]] | None,
    body_size: int = 0,
    flag: int = 1,
) -> bytes: ...
