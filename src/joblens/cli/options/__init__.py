"""Options and arguments that several commands share, as tables.

Plain `joblens run` command lines are parsed without click (`quick_run`), by the same table that click's
options are made from: importing click was a fifth of the cost of a short job."""
