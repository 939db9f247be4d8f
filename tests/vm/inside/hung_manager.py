"""`joblens run -- true` with the user manager as usual, and stopped by SIGSTOP."""

from tests.vm.inside.jobs import answer, own_store, run_job, signal_manager


def main() -> None:
    with own_store() as folder:
        run_job(folder, "warm-up", ["true"])
        usual = run_job(folder, "usual", ["true"])
        signal_manager("STOP")
        try:
            hung = run_job(folder, "hung", ["true"])
        finally:
            signal_manager("CONT")
        answer({"usual": usual, "hung": hung})


main()
