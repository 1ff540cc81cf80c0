"""How a page looks: one style sheet, for light and dark, wide and narrow screens, and paper."""

from __future__ import annotations

STYLE = """\
:root {
  color-scheme: light dark;
  --ground: #fbfbf9; --card: #ffffff; --line: #dedfd9; --faint: #f2f2ee;
  --ink: #1d1f20; --dim: #63686b;
  --good: #1f7a3d; --bad: #b3261e; --care: #8a5a00; --busy: #1266a8;
  --name: 17rem; --took: 4.5rem;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #15171a; --card: #1c1f23; --line: #353a40; --faint: #24282d;
    --ink: #e4e6e8; --dim: #9aa1a8;
    --good: #63c384; --bad: #f2857d; --care: #e0b055; --busy: #6db6f2;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 62rem;
  background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "Noto Sans", "Noto Sans CJK SC", sans-serif;
}
h1 { margin: 0 0 .25rem; font-size: 1.6rem; line-height: 1.25; overflow-wrap: anywhere; }
h2 { margin: 0 0 .25rem; font-size: 1.15rem; }
p { margin: .25rem 0; }
code, pre, .chart { font-family: ui-monospace, "Cascadia Mono", "Noto Sans Mono", Menlo, Consolas, monospace; }
code { font-size: .92em; }
.about { color: var(--dim); font-size: .88rem; }
.about span + span::before { content: "\\00b7"; margin-right: .45rem; }
.dim, .at { color: var(--dim); } .good { color: var(--good); } .bad { color: var(--bad); }
.care { color: var(--care); } .busy { color: var(--busy); }
.mark { display: inline-block; width: 1.1em; text-align: center; }
.at { font-size: .8rem; float: right; }
.run {
  margin: 1.75rem 0 0; padding: 1.25rem 1.4rem; background: var(--card);
  border: 1px solid var(--line); border-radius: .6rem;
}
.attention {
  margin: .75rem 0; padding: .5rem .8rem; border-left: 3px solid var(--care); background: var(--faint);
}
.attention ul { margin: .25rem 0; }
pre.text {
  margin: .3rem 0; white-space: pre-wrap; overflow-wrap: anywhere; tab-size: 4; unicode-bidi: plaintext;
  font-size: .85rem; line-height: 1.5;
}
.said pre.text { font: inherit; white-space: pre-wrap; }

.chart { position: relative; margin: 1rem 0 1.25rem; padding-top: 1.5rem; font-size: .78rem; }
.axis { position: absolute; inset: 0 var(--took) 0 var(--name); pointer-events: none; }
.tick { position: absolute; top: 0; bottom: 0; border-left: 1px solid var(--line); color: var(--dim); }
.tick b { position: absolute; top: 0; left: 0; transform: translateX(-50%); font-weight: normal; white-space: nowrap; }
.tick b { background: var(--card); padding: 0 .2rem; }
.tick.first b { transform: none; left: -1px; padding-left: 0; }
.tick.last b { transform: translateX(-100%); padding-right: 0; }
.gap {
  position: absolute; top: 1.4rem; bottom: 0; min-width: 4px;
  background: repeating-linear-gradient(135deg, var(--line) 0 2px, transparent 2px 6px);
}
.row {
  display: grid; grid-template-columns: var(--name) 1fr var(--took); align-items: center;
  position: relative; height: 1.5rem; color: inherit; text-decoration: none; border-radius: .25rem;
}
.row:hover { background: color-mix(in srgb, var(--busy) 12%, transparent); }
.row .name { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; padding-right: .75rem; }
.row .took { text-align: right; color: var(--dim); white-space: nowrap; }
.track { position: relative; height: .8rem; }
.bar {
  position: absolute; top: 0; bottom: 0; min-width: 3px; border-radius: 2px; background: currentColor; opacity: .85;
}
.bar.rest {
  opacity: .8; background: repeating-linear-gradient(90deg, currentColor 0 2px, transparent 2px 5px);
  top: .25rem; bottom: .25rem;
}
.bar.open { border-radius: 2px 0 0 2px; mask-image: linear-gradient(90deg, #000 60%, transparent); }
.bar.dim { color: var(--dim); } .bar.strong { color: var(--dim); }

.steps { list-style: none; margin: 0; padding: 0; }
.steps > li { margin: .55rem 0; scroll-margin-top: 1rem; }
.steps > li:target { outline: 2px solid var(--busy); outline-offset: .3rem; border-radius: .3rem; }
.said { padding: .5rem .8rem; border-radius: .45rem; background: var(--faint); }
.said.user { border-left: 3px solid var(--busy); }
.said.assistant { border-left: 3px solid var(--care); }
.head { margin: 0; font-size: .85rem; }
.operation { border: 1px solid var(--line); border-radius: .45rem; padding: 0 .8rem; }
.operation[open] { padding-bottom: .5rem; }
summary { cursor: pointer; padding: .3rem 0; font-size: .85rem; overflow-wrap: anywhere; }
.facts { font-size: .78rem; } .facts span { margin-right: .8rem; }
.label { margin: .5rem 0 0; font-size: .75rem; color: var(--dim); text-transform: uppercase; letter-spacing: .04em; }
.label.bad { color: var(--bad); } .label.care { color: var(--care); }
.operation pre.text { background: var(--faint); border-radius: .3rem; padding: .4rem .6rem; max-height: 30rem;
  overflow: auto; }
.reply { padding: .3rem .8rem; }
.report { margin-top: 1.25rem; padding-top: 1rem; border-top: 1px solid var(--line); }
.reply, .report { overflow-wrap: anywhere; unicode-bidi: plaintext; }
.report h1, .reply h1 { font-size: 1.4rem; } .report h2, .reply h2 { font-size: 1.15rem; }
.report h3, .reply h3 { font-size: 1rem; }
.report :is(h1, h2, h3, h4), .reply :is(h1, h2, h3, h4) { margin: 1.1rem 0 .4rem; }
.report p, .reply p, .report ul, .reply ul, .report ol, .reply ol { margin: .5rem 0; }
.report blockquote, .reply blockquote { margin: .5rem 0; padding-left: .8rem; border-left: 3px solid var(--line);
  color: var(--dim); }
.report pre, .reply pre { background: var(--faint); border-radius: .4rem; padding: .7rem .9rem; overflow-x: auto; }
.report :not(pre) > code, .reply :not(pre) > code { background: var(--faint); border-radius: .25rem;
  padding: .05rem .3rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .6rem 0; font-size: .92rem; }
th, td { border: 1px solid var(--line); padding: .25rem .6rem; text-align: left; }
th { background: var(--faint); }

@media (max-width: 40rem) {
  body { padding: 1rem .6rem 3rem; }
  .run { padding: .9rem .8rem; }
  .at { float: none; display: block; }
  .axis { inset: 0; }
  .row { grid-template-columns: 1fr auto; height: auto; padding: .15rem 0; }
  .row .track { grid-column: 1 / -1; grid-row: 2; }
  .row .name { background: var(--card); width: fit-content; max-width: 100%; }
  .row .took { background: var(--card); padding-left: .3rem; }
}
@media print {
  body { max-width: none; padding: 0; }
  .run { border: 0; padding: 0; }
  .operation pre.text { max-height: none; }
}
"""
