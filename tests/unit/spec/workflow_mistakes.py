"""Workflow files with one mistake each, and what is said about it."""

JOB_MISTAKES = [
    (
        "max_retries: 3",
        "unknown key 'max_retries' in job 'a'; it belongs in an entry of rules of a failure handler",
    ),
    ("timeout: 3", "unknown key 'timeout' in job 'a'; did you mean 'runtime'?"),
    ("depends_on: b", "depends_on in job 'a' must be a list of names, not 'b'; write [b]"),
    ("depends_on: [{}]", "item 1 of depends_on in job 'a' must be a name, not a mapping"),
    (
        "depends_on_regexes: ['(']",
        (
            "item 1 of depends_on_regexes in job 'a' must be a regular expression, not '(': "
            "missing ), unterminated subpattern at character 1"
        ),
    ),
    ("priority: high", "priority in job 'a' must be a whole number, not 'high'"),
    ("priority: 1.5", "priority in job 'a' must be a whole number, not 1.5"),
    ("supports_termination: 'yes'", "supports_termination in job 'a' must be true or false, not 'yes'"),
    (
        "parameter_mode: zap",
        "parameter_mode in job 'a' must be product or zip, not 'zap'; did you mean 'zip'?",
    ),
    ("memory: -5", "memory in job 'a' must be more than 0, not -5"),
    ("memory: 9999999999p", "memory in job 'a' must be a size such as 512m, 2g or 1.5GiB, not '9999999999p'"),
    ("priority: 99999999999999999999", "priority in job 'a' must be a whole number of at most 18 digits"),
    ('invocation_script: "a\\0b"', "invocation_script in job 'a' must not have a NUL character"),
    ("memory: 0", "memory in job 'a' must be more than 0, not 0"),
    ("num_gpus: -1", "num_gpus in job 'a' must be 0 or more, not -1"),
    ("cpus: 1, num_cpus: 2", "num_cpus in job 'a' means the same as cpus; write only one of them"),
    (
        "blocked_by: [b], depends_on: [c]",
        "depends_on in job 'a' means the same as blocked_by; write only one of them",
    ),
    ("cpus: 1, resource_requirements: big", "cpus in job 'a' cannot be combined with resource_requirements"),
    (
        "resource_requirements: 3",
        "resource_requirements in job 'a' must be the name of requirements, or a mapping of amounts, not 3",
    ),
    (
        "resource_requirements: {cpu: 3}",
        "unknown key 'cpu' in resource_requirements; did you mean 'num_cpus'?",
    ),
    (
        "parameters: {i: null}",
        "parameters.i in job 'a' must be text, a number or a list of them, not nothing",
    ),
    ("parameters: {i: []}", "parameters.i in job 'a' must have at least one value"),
    (
        "parameters: {i: [1, {}]}",
        "item 2 of parameters.i in job 'a' must be text or a number, not a mapping",
    ),
    (
        "parameters: {1a: 1}",
        (
            "parameters.1a in job 'a' is not a valid name for {…}; use letters, digits, _ and -, "
            "starting with a letter or _"
        ),
    ),
    (
        "parameters_file: t.csv, parameters: {i: 1}",
        "parameters in job 'a' cannot be combined with parameters_file",
    ),
    (
        "use_parameters_file: true",
        "use_parameters_file in job 'a' requires a parameters_file at the top of the file",
    ),
    (
        "env: {A=B: 1}",
        (
            "env.A=B in job 'a' is not a valid environment variable; "
            "use letters, digits and _, not starting with a digit"
        ),
    ),
    ("env: {A: [1]}", "env.A in job 'a' must be text, not a list"),
    ("env: [A]", "env in job 'a' must be a mapping of names to texts, not a list"),
    ("invocation_script: {}", "invocation_script in job 'a' must be text, not a mapping"),
    (
        "stdio: {mode: both}",
        "mode in stdio must be separate, combined, no_stdout, no_stderr or none, not 'both'",
    ),
]

NAME_MISTAKES = [
    ('""', "name in a job must not be empty"),
    ('"  "', "name in job '  ' must not be empty"),
    ('"a\\tb"', r"name in job 'a\tb' must not have control characters; 'a\tb' has '\t'"),
    ("a/b", "name in job 'a/b' must not have '/', as 'a/b' has"),
    ("[a]", "name in a job must be a name, not a list"),
    ("null", "name in a job must be a name, not nothing"),
]

SECTION_MISTAKES = [
    (
        "resource_monitor: {sample_interval_seconds: 0.01}",
        "sample_interval_seconds in resource_monitor must be at least 0.05, not 0.01",
    ),
    (
        "resource_monitor: {jobs: {granularity: timeseries}}",
        (
            "granularity in resource_monitor.jobs must be summary or time_series, not 'timeseries'; "
            "did you mean 'time_series'?"
        ),
    ),
    (
        "execution_config: {enable_cpu_bind: true}",
        "enable_cpu_bind in execution_config requires mode slurm or auto, not direct",
    ),
    (
        "execution_config: {mode: slurm, limit_resources: false}",
        "limit_resources in execution_config requires mode direct or auto, not slurm",
    ),
    (
        "execution_config: {termination_signal: SIGSTOPP}",
        "termination_signal in execution_config must be a signal such as SIGTERM, not 'SIGSTOPP'",
    ),
    (
        "execution_config: {staggered_start: -1}",
        "staggered_start in execution_config must be 0 or more, not -1",
    ),
    (
        "slurm_defaults: {partition: long}",
        "'partition' is not allowed in slurm_defaults; it belongs in slurm_schedulers",
    ),
    (
        "slurm_defaults: {job-name: x}",
        "'job-name' is not allowed in slurm_defaults; it belongs in slurm_schedulers, as 'name'",
    ),
    ("slurm_defaults: {acount: x}", "sbatch has no option 'acount'; did you mean 'account'?"),
    ("slurm_defaults: {qos: []}", "qos in slurm_defaults must be text, a number or true, not a list"),
    ("slurm_schedulers: [{name: s}]", "Slurm scheduler 's' has no 'account'"),
    (
        "slurm_schedulers: [{account: a, walltime: 4h}]",
        "walltime in a Slurm scheduler must be a time such as 04:00:00 or 1-12:00:00, not '4h'",
    ),
    (
        "actions: [{trigger_type: on_jobs_ready, action_type: run_commands, commands: [ls]}]",
        "trigger_type on_jobs_ready in an action requires 'jobs' or 'job_name_regexes'",
    ),
    (
        "actions: [{trigger_type: on_workflow_start, action_type: run_commands}]",
        "action_type run_commands in an action requires 'commands'",
    ),
    (
        "failure_handlers: [{name: h, rules: [{max_retries: 2}]}]",
        "a rule needs 'exit_codes' or 'match_all_exit_codes'",
    ),
    (
        "failure_handlers: [{name: h, rules: [{exit_codes: [0]}]}]",
        "item 1 of exit_codes in a rule must be an exit code from 1 to 255, not 0",
    ),
    (
        "failure_handlers: [{name: h, rules: [{exit_codes: [1], memory_factor: 0.5}]}]",
        "memory_factor in a rule must be at least 1, not 0.5",
    ),
    (
        "resource_requirements: [{name: default}]",
        (
            "name in resource requirements 'default' must not be 'default': that name is reserved for jobs "
            "without requirements"
        ),
    ),
    ("files: [{name: f}]", "file 'f' has no 'path'"),
    (
        "metadata: '{'",
        (
            "metadata must be a mapping or JSON text of one, not '{': Expecting property name enclosed in "
            "double quotes: line 1 column 2 (char 1)"
        ),
    ),
    ("variables: {a: null}", "variables.a must be text, not nothing"),
]

FILE_MISTAKES = [
    ("", "1:1: w.yaml is empty; a workflow has a name and jobs"),
    ("[1]", "1:1: the file must be a mapping, not a list"),
    ("name: w", "1:1: the workflow has no 'jobs'"),
    ("name: w\njobs: []", "2:1: jobs must have at least one entry"),
    ("name: w\njobs: null", "2:1: jobs must be a list of mappings, not nothing"),
    (
        "name: w\njobs: {a: 1}",
        "2:1: jobs must be a list of mappings, not a mapping; begin each entry with '- '",
    ),
    ("name: w\njobs: [{command: ls}]", "2:8: a job has no 'name'"),
    ("name: w\njobs: [{name: a}]", "2:8: job 'a' has no 'command'"),
    ("name: w\njobs: [ls]", "2:8: item 1 of jobs must be a mapping, not 'ls'"),
]
