"""Why a number is unknown, in words that several places have to recognise."""

NOT_MEASURED = "not measured"  # nobody said anything: an import, a record of an older joblens
NO_GRID_FACTOR = "no grid factor is set (energy.grid_co2_g_per_kwh)"
ONLY_IMPORTED = "joblens does not add up resident sizes; imported files may"
