"""What engines say of a container that did not come to run."""

import pytest

from joblens.agent.containers.container import NOT_EXECUTABLE, NOT_FOUND, REFUSED, code_for, explain_refusal

_RUNC = "OCI runtime create failed: container_linux.go:380: starting container process caused: "


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f'{_RUNC}exec: "nope": executable file not found in $PATH: unknown', NOT_FOUND),
        (f'{_RUNC}exec: "/nope": stat /nope: no such file or directory: unknown', NOT_FOUND),
        ("crun: executable file `nope` not found in $PATH: No such file or directory", NOT_FOUND),
        (f'{_RUNC}exec: "/etc": permission denied: unknown', NOT_EXECUTABLE),
        (f'{_RUNC}exec: "/etc": is a directory: unknown', NOT_EXECUTABLE),
        ("crun: open executable: Permission denied: OCI permission denied", NOT_EXECUTABLE),
        (
            'error gathering device information adding custom device "/dev/x": no such file or directory',
            REFUSED,
        ),
        (f'{_RUNC}process_linux.go:545: mounting "/x": no such file or directory', REFUSED),
        (f'{_RUNC}chdir to cwd ("/root/x") set in config.json failed: permission denied', REFUSED),
        ("Conflict. The container name is already in use", REFUSED),
    ],
)
def test_only_what_is_said_of_the_program_is_the_programs_fault(text: str, code: int) -> None:
    assert code_for(text) == code


def test_a_lack_of_the_gpu_runtime_is_reported_in_plain_words() -> None:
    assert "NVIDIA runtime" in explain_refusal('could not select device driver "" with capabilities: [[gpu]]')
    assert explain_refusal("no such image: bb:2") == ""
