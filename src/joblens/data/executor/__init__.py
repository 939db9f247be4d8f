"""The process that runs a recipe's job: coordinator and worker pools."""
