"""A very long event log, in the form that DataJuicer writes and its snapshot tool reads."""

import json
from pathlib import Path

OPERATORS = (
    "clean_links_mapper",
    "clean_email_mapper",
    "whitespace_normalization_mapper",
    "text_length_filter",
    "words_num_filter",
    "alphanumeric_filter",
    "document_deduplicator",
    "special_characters_filter",
)
_START = 1_754_712_053.0


def write_long_event_log(job_dir: str, events: int) -> None:
    """Writes the log of an ended job: partitions of 28 events each, as many as needed."""
    clock = _START
    written = 1
    folder = Path(job_dir)
    with (folder / "events.jsonl").open("w", encoding="utf-8") as out:

        def event(kind: str, **more: object) -> None:
            nonlocal clock, written
            clock += 0.001
            written += 1
            out.write(
                json.dumps({"event_type": kind, "timestamp": clock, "job_id": folder.name, **more}) + "\n"
            )

        event("job_start", metadata={"checkpoint_strategy": "every_op"})
        partition = 0
        while written < events:
            event("partition_creation_start", partition_id=partition)
            event("partition_creation_complete", partition_id=partition, metadata={"sample_count": 1000})
            event("partition_start", partition_id=partition)
            for index, name in enumerate(OPERATORS):
                place = {"partition_id": partition, "operation_name": name, "operation_idx": index}
                event("op_start", **place)
                rows = {"duration_seconds": 0.001, "input_rows": 1000 - index, "output_rows": 999 - index}
                event("op_complete", **place, status="success", metadata=rows)
                event(
                    "checkpoint_save",
                    **place,
                    metadata={"checkpoint_path": f"checkpoints/{partition}-{index}"},
                )
            event("partition_complete", partition_id=partition)
            partition += 1
        event("job_complete", status="completed", duration=clock - _START)
