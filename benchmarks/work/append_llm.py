"""Logs a response of a model that answers at once, with llm: `FOLDER`."""

import sys

import llm
import sqlite_utils
from llm.migrations import migrate
from serving import seconds_of, serve

database = sqlite_utils.Database(f"{sys.argv[1]}/llm.db")
migrate(database)


class Ready(llm.Model):
    model_id = "ready"

    def execute(self, prompt, stream, response, conversation):
        yield f"{prompt.prompt} is under way"


def append(count: int) -> list[float]:
    responses = [Ready().prompt(f"export-{number:08}") for number in range(count)]
    for response in responses:
        response.text()
    return seconds_of(lambda number: responses[number].log_to_db(database), count)


serve(append=append)
