"""How every HTML page that joblens writes begins. To be formatted with the title, already escaped."""

PAGE_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="joblens">
<title>{title}</title>
"""
