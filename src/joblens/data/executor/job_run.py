"""One run of a recipe's job: what is told when it begins and, whatever happens, when it ends."""

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from joblens.analysis.recipes.seen import SeenMetadata, UsedResources
from joblens.analysis.recipes.steps import StepTotals, step_in
from joblens.data.base.job_folder import JobFolder
from joblens.data.base.op_usage import Meter
from joblens.data.base.reasons import message_of, reason_of, with_place
from joblens.data.base.worker_events import event
from joblens.data.executor import job_events
from joblens.data.executor.coordinator import Coordinator
from joblens.data.executor.job_summary import JobEnd, JobSummary
from joblens.data.executor.pool import Pool
from joblens.data.executor.task_runner import Stopped
from joblens.data.partition.restoring import remove_all_leftovers
from joblens.files.whole import write_whole
from joblens.model.errors import BadRow, JoblensError
from joblens.model.recipes.event import EventType, RecipeEvent, Step
from joblens.model.recipes.recipe import RecipePlan

# Given back when the job ends: on a full disk, that it failed can still be written down.
_RESERVE_BYTES = 64 * 1024
_TELL_STEPS = (
    EventType.STEP_COMPLETE,
    EventType.PARTITION_CREATION_COMPLETE,
    EventType.PARTITION_COMPLETE,
)


class StepsTold:
    """Adds up what events say was used for no operator, whether or not they are written anywhere."""

    def __init__(self, summary: JobSummary) -> None:
        self._totals = StepTotals(summary.steps_before)

    def see(self, events: Sequence[RecipeEvent]) -> None:
        for each in events:
            if each.event_type in _TELL_STEPS and each.metadata is not UNSET:
                step = step_in(each.event_type, msgspec.convert(each.metadata, SeenMetadata))
                if step is not None:
                    self._totals.add(*step)

    def document(self) -> list[dict[str, Any]]:
        return [msgspec.to_builtins(use) for use in self._totals.uses()]


class JobRun:
    def __init__(
        self, plan: RecipePlan, pool: Pool, log: Callable[[Sequence[RecipeEvent]], None], steps: StepsTold
    ) -> None:
        self._plan = plan
        self._folder = JobFolder.of_plan(plan)
        self._pool = pool
        self._log = log
        self._steps = steps

    def run(self, coordinator: Coordinator, summary: JobSummary, *, is_resumed: bool) -> JobEnd:
        began, meter = time.time(), Meter()
        end = self._to_its_end(coordinator, summary, is_resumed=is_resumed)
        led = self._led(meter)  # the kernel adds what workers read and wrote when they have ended
        self._pool.close()  # nobody writes any more
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._folder.reserve)
        if end.status == "failed":
            remove_all_leftovers(self._folder)
        return self._told(end, coordinator.counts(), summary, time.time() - began, led)

    def _to_its_end(self, coordinator: Coordinator, summary: JobSummary, *, is_resumed: bool) -> JobEnd:
        try:
            summary.write_start()
            write_whole(self._folder.reserve, bytes(_RESERVE_BYTES))
            self._log([job_events.job_start(self._plan, is_resumed=is_resumed)])
            return coordinator.carry_out(is_resumed=is_resumed)
        except Stopped as stopped:
            return JobEnd(status="stopped", error_message=str(stopped), exit_code=128 + stopped.signal_number)
        except JoblensError as error:
            told = "; ".join(part for part in (message_of(error), error.hint) if part)
            can_go_on = not isinstance(error, BadRow)  # the row would end it again
            return JobEnd(status="failed", error_message=told, exit_code=1, can_go_on=can_go_on)
        except OSError as error:
            told = with_place(error, self._folder.written_to(self._plan.recipe.export_path))
            return JobEnd(status="failed", error_message=told, exit_code=1)
        except Exception as error:  # noqa: BLE001 - whatever it is, the job's folder must say that it ended
            traceback.print_exc(file=sys.stderr)
            return JobEnd(status="failed", error_message=reason_of(error), exit_code=1)

    def _told(
        self, end: JobEnd, counts: dict[str, Any], summary: JobSummary, duration: float, led: RecipeEvent
    ) -> JobEnd:
        """Each place by itself: that one cannot be written says nothing about the other."""
        self._steps.see([led])
        ended = job_events.job_end(end, duration, self._plan, counts)
        lost: list[OSError] = []
        try:
            summary.write_end(end, counts, self._steps.document())
        except OSError as error:
            lost.append(error)
        try:
            self._log([led, ended])
        except OSError as error:
            lost.append(error)
        if not lost or end.exit_code:
            return end
        told = with_place(lost[0], self._folder.written_to(self._plan.recipe.export_path))
        return msgspec.structs.replace(
            end, error_message=f"its end cannot be written down: {told}", exit_code=1
        )

    def _led(self, meter: Meter) -> RecipeEvent:
        """What this process itself used, its start included. It goes on beside all the others: its time is
        that of the job."""
        usage = meter.usage()
        used = UsedResources(
            cpu_seconds=round(time.process_time(), 6),
            memory_peak_bytes=usage.memory_peak_bytes,
            read_bytes=usage.read_bytes,
            written_bytes=usage.written_bytes,
        )
        meta = {"step": Step.COORDINATING.value, "resources": msgspec.to_builtins(used)}
        return event(EventType.STEP_COMPLETE, metadata=meta)
