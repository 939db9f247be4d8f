"""joblens inside a job: the outer record beside the inner one, and the outer limit for the inner job."""

from typing import Any

from tests.vm.inside.jobs import answer, at_once, own_store, python, run_job, show

BURN_AND_FILL = "burn(2); block = fill(200); time.sleep(0.3)"
FILL = "block = fill(300); time.sleep(0.3)"


def inner(name: str, code: str) -> list[str]:
    return ["joblens", "run", "-q", "--name", name, "--", *python(code)]


def main() -> None:
    with own_store() as folder:

        def whole() -> dict[str, Any]:
            outer = run_job(folder, "outer", inner("inner", BURN_AND_FILL))
            return {"outer": outer, "inner": show("inner")}

        def limited() -> dict[str, Any]:
            outer = run_job(folder, "outer-limited", inner("inner-limited", FILL), "--memory", "100m")
            return {"outer": outer, "inner": show("inner-limited")}

        def mapped() -> dict[str, Any]:
            code = "import joblens; print([r.ok for r in joblens.map_commands([['true']] * 10)])"
            import sys

            argv = [sys.executable, "-c", code]
            return run_job(folder, "outer-map", argv, "--memory", "1g", "--pids", "500")

        answer(at_once(whole=whole, limited=limited, mapped=mapped))


main()
