"""Where everything of one recipe's job lies."""

import os

from joblens.files.private import make_private_folder
from joblens.model.recipes.recipe import RecipePlan

EVENTS = "events.jsonl"


class JobFolder:
    """Names only; `make` creates the folders. Events and checkpoints may lie elsewhere, when the recipe says
    so: then in a folder of the job's own name, so that two jobs never meet there."""

    def __init__(self, job_dir: str, *, event_log_dir: str = "", checkpoint_dir: str = "") -> None:
        self.path = os.path.abspath(job_dir)
        self.job_id = os.path.basename(self.path)
        self.logs = os.path.join(self.path, "logs")
        self.metadata = os.path.join(self.path, "metadata")
        self.partitions = os.path.join(self.path, "partitions")
        self.rejects = os.path.join(self.path, "rejects")
        self.trace = os.path.join(self.path, "trace")
        self.event_log_dir = self._of_this_job(event_log_dir) or self.path
        self.checkpoints = self._of_this_job(checkpoint_dir) or os.path.join(self.path, "checkpoints")

    @classmethod
    def of_plan(cls, plan: RecipePlan) -> "JobFolder":
        recipe = plan.recipe
        return cls(plan.job_dir, event_log_dir=recipe.event_log_dir, checkpoint_dir=recipe.checkpoint_dir)

    def _of_this_job(self, folder: str) -> str:
        if not folder or self.job_id in folder.split(os.sep):
            return folder
        return os.path.join(folder, self.job_id)

    def make(self) -> None:
        folders = (self.path, self.logs, self.metadata, self.partitions, self.checkpoints, self.event_log_dir)
        for folder in folders:
            make_private_folder(folder)

    def written_to(self, export_path: str) -> tuple[str, ...]:
        """Folders that may lie on disks of their own; the job's first."""
        return (self.path, self.checkpoints, self.event_log_dir, os.path.dirname(export_path))

    # What a person, or another program, reads

    @property
    def events(self) -> str:
        return os.path.join(self.event_log_dir, EVENTS)

    @property
    def events_log(self) -> str:
        return os.path.join(self.logs, "events.log")

    @property
    def log(self) -> str:
        return os.path.join(self.logs, "log.txt")

    @property
    def dag_plan(self) -> str:
        return os.path.join(self.path, "dag_execution_plan.json")

    @property
    def summary(self) -> str:
        return os.path.join(self.path, "job_summary.json")

    def recipe_copy(self, file_name: str) -> str:
        return os.path.join(self.path, os.path.basename(file_name) or "recipe.yaml")

    # What the executor itself goes by

    @property
    def plan(self) -> str:
        return os.path.join(self.metadata, "plan.json")

    @property
    def dataset_mapping(self) -> str:
        return os.path.join(self.metadata, "dataset_mapping.json")

    @property
    def final_mapping(self) -> str:
        return os.path.join(self.metadata, "final_mapping_report.json")

    @property
    def lock(self) -> str:
        """Held with flock by the executor that runs the job; says its process id and when that started."""
        return os.path.join(self.metadata, "lock")

    @property
    def reserve(self) -> str:
        """Room on the disk for saying how the job ended."""
        return os.path.join(self.metadata, "reserve")

    @property
    def export_manifest(self) -> str:
        return os.path.join(self.metadata, "export.json")

    @property
    def earlier_export(self) -> str:
        """Of the job of this id that was there before this one was started over."""
        return os.path.join(self.metadata, "earlier_export.json")

    def cut_folder(self, number: int) -> str:
        """Pieces of one input that cannot be read from its middle."""
        return os.path.join(self.partitions, f"input_{number:06d}")

    def cut_manifest(self, number: int) -> str:
        return os.path.join(self.cut_folder(number), "pieces.json")

    def cut_rejects(self, number: int) -> str:
        return os.path.join(self.rejects, f"input_{number:06d}.jsonl")

    def rejects_of(self, partition_id: int) -> str:
        return os.path.join(self.rejects, f"partition_{partition_id:06d}.jsonl")

    def output_of(self, partition_id: int | None) -> str:
        """Printed by operators of users; None: by one that sees all partitions."""
        name = "all_partitions" if partition_id is None else f"partition_{partition_id:06d}"
        return os.path.join(self.logs, "operators", f"{name}.log")

    def trace_of(self, index: int, name: str) -> str:
        return os.path.join(self.trace, f"op_{index:03d}_{name}.jsonl")

    def trace_parts(self, index: int, name: str) -> str:
        return os.path.join(self.partitions, f"trace_{index:03d}_{name}")

    # What partitions leave behind

    def checkpoints_of(self, partition_id: int) -> str:
        return os.path.join(self.checkpoints, f"partition_{partition_id:06d}")

    def checkpoint(self, partition_id: int, index: int, name: str) -> str:
        return os.path.join(self.checkpoints_of(partition_id), f"op_{index:03d}_{name}.arrow")

    def checkpoint_manifest(self, partition_id: int, index: int, name: str) -> str:
        return os.path.join(self.checkpoints_of(partition_id), f"op_{index:03d}_{name}.json")

    def checkpoint_rejects(self, partition_id: int, index: int, name: str) -> str:
        return os.path.join(self.checkpoints_of(partition_id), f"op_{index:03d}_{name}.rejects.jsonl")

    def signatures_dir(self, index: int) -> str:
        return os.path.join(self.partitions, f"signatures_{index:03d}")

    def signatures(self, partition_id: int, index: int) -> str:
        return os.path.join(self.signatures_dir(index), f"partition_{partition_id:06d}.arrow")

    def stage_whole(self, partition_id: int, stage: int) -> str:
        """The state of a partition that waits for the others."""
        return os.path.join(self.checkpoints_of(partition_id), f"stage_{stage:03d}.arrow")

    def stage_manifest(self, partition_id: int, stage: int) -> str:
        return os.path.join(self.checkpoints_of(partition_id), f"stage_{stage:03d}.json")

    def stage_rejects(self, partition_id: int, stage: int) -> str:
        return os.path.join(self.checkpoints_of(partition_id), f"stage_{stage:03d}.rejects.jsonl")

    def masks(self, index: int) -> str:
        """Which rows of which partition a global operator kept, one bit a row."""
        return os.path.join(self.partitions, f"masks_{index:03d}.bin")

    def masks_manifest(self, index: int) -> str:
        return os.path.join(self.partitions, f"masks_{index:03d}.json")

    def export_part(self, partition_id: int, suffix: str) -> str:
        return os.path.join(self.partitions, f"partition_{partition_id:06d}{suffix}")

    def export_part_manifest(self, partition_id: int) -> str:
        return os.path.join(self.partitions, f"partition_{partition_id:06d}.json")

    @property
    def moved(self) -> str:
        """Where in the export each part has its place, once they are being moved there."""
        return os.path.join(self.partitions, "moved.json")

    def scratch(self, index: int) -> str:
        """Of a global operator, while it decides."""
        return os.path.join(self.partitions, f"scratch_{index:03d}")


def is_of_stage(name: str) -> bool:
    """A file beside the checkpoints of a partition that only those need that wait for others."""
    return name.startswith("stage_")
