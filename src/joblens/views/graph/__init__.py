"""Graph of a workflow as text, Mermaid or SVG."""
