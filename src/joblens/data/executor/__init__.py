"""The process that runs a recipe's job: coordinator and worker pools.

The executor is a measured job like any other. Its coordinator alone writes the event log; it hands tasks to
a pool and decides what comes next. Workers execute tasks and know nothing of each other. Manifests on disk
say which steps are done: they are written last and renamed into place, with counts and digests. Events only
inform people."""
