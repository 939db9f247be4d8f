"""Values as text for people: no reading, no printing, no clock of their own."""
