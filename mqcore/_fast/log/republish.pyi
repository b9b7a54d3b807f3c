from mqcore._fast.log.append import CommitLogWriter

def republish_record(
    writer: CommitLogWriter,
    physical_offset: int,
    *,
    topic: bytes,
    queue_id: int,
    dropped: tuple[bytes, ...] = (),
    added: bytes = b"",
    sys_flag_cleared: int = 0,
    sys_flag_set: int = 0,
    prepared_transaction_offset: int = 0,
) -> tuple[int, list[int], int, int, int, int] | None: ...
