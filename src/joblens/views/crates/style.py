"""How the page of a crate looks; nothing is loaded from anywhere."""

STYLE = """
:root { color-scheme: light dark; --ink: #1f2430; --soft: #667085; --line: #e4e7ec; --paper: #fff;
  --back: #f6f7f9; --good: #1a7f4b; --good-back: #e3f5ea; --bad: #b42318; --bad-back: #fdeceb;
  --other: #475467; --other-back: #eef0f4; --link: #1b5fc1; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ec; --soft: #9aa3b2; --line: #30353f;
  --paper: #1b1f27; --back: #14171d; --good: #6fd79d; --good-back: #163526; --bad: #ff9b91;
  --bad-back: #44201d; --other: #b6bdc9; --other-back: #2a2f39; --link: #84b6ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); line-height: 1.5;
  font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 15px; }
header, main, footer { max-width: 1080px; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2.2rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 0 0 .7rem; }
.kind { margin: 0 0 .2rem; color: var(--soft); font-size: .85rem; letter-spacing: .02em; }
.lead { margin: .3rem 0 1.2rem; color: var(--soft); overflow-wrap: anywhere; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 10px;
  padding: 1.1rem 1.25rem; margin: 0 0 1.1rem; }
section p { margin: 0; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .7rem;
  margin: 0 0 1.1rem; }
.facts div { background: var(--paper); border: 1px solid var(--line); border-radius: 10px;
  padding: .65rem .9rem; }
dt { color: var(--soft); font-size: .8rem; }
dd { margin: .1rem 0 0; font-weight: 600; overflow-wrap: anywhere; }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th { text-align: left; color: var(--soft); font-weight: 500; font-size: .8rem; white-space: nowrap; }
th, td { padding: .4rem .8rem .4rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tbody tr:last-child td { border-bottom: 0; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.words td:first-child { color: var(--soft); white-space: nowrap; width: 7rem; }
.words thead { display: none; }
.badge { border-radius: 99px; padding: .1rem .6rem; font-size: .82rem; font-weight: 600;
  white-space: nowrap; }
.badge.good { color: var(--good); background: var(--good-back); }
.badge.bad { color: var(--bad); background: var(--bad-back); }
.badge.other { color: var(--other); background: var(--other-back); }
.track { position: relative; width: 9rem; height: .6rem; margin-top: .45rem; border-radius: 3px;
  background: var(--other-back); }
.track i { position: absolute; top: 0; bottom: 0; border-radius: 3px; }
.track .good { background: var(--good); }
.track .bad { background: var(--bad); }
td .when { white-space: nowrap; }
.note { color: var(--soft); font-size: .85rem; }
code, pre { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, monospace; font-size: .86em; }
code { overflow-wrap: anywhere; }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; }
a { color: var(--link); }
footer { color: var(--soft); font-size: .85rem; padding-bottom: 2.5rem; }
"""
