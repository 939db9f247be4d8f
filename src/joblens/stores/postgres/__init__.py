"""The store in a PostgreSQL database, through psycopg."""
