"""Why a number is unknown, in words that several places have to recognise."""

NOT_MEASURED = "not measured"  # nothing of the kind here, or nobody asked for it
NO_GRID_FACTOR = "no grid factor is set (energy.grid_co2_g_per_kwh)"
