"""A workflow of dbos with a step for each model request and each tool call, on sqlite: `FOLDER`."""

import logging
import sys
import time

from dbos import DBOS
from serving import serve

DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{sys.argv[1]}/dbos.db", "run_admin_server": False})
logging.disable(logging.CRITICAL)


@DBOS.step()
def model(turn: int) -> str:
    return f"turn {turn}"


@DBOS.step()
def tool(turn: int) -> str:
    return "done"


@DBOS.workflow()
def work(turns: int) -> str:
    for turn in range(turns):
        reply = model(turn)
        if turn + 1 < turns:
            tool(turn)
    return reply


def run(turns: int) -> list[float]:
    start = time.perf_counter()
    work(turns)
    return [time.perf_counter() - start]


DBOS.launch()
serve(run=run)
