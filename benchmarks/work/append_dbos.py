"""Steps of a workflow of dbos, on sqlite: `FOLDER`."""

import logging
import sys

from dbos import DBOS
from serving import seconds_of, serve

DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{sys.argv[1]}/dbos.db", "run_admin_server": False})
logging.disable(logging.CRITICAL)


@DBOS.step()
def step(number: int) -> str:
    return f"export-{number:08}"


@DBOS.workflow()
def steps(count: int) -> list[float]:
    return seconds_of(step, count)


DBOS.launch()
serve(append=steps)
