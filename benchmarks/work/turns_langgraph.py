"""A run of a graph of langgraph, a model that is scripted and a tool that does nothing, with SqliteSaver: `FOLDER`."""

import sqlite3
import sys
import time
from operator import add
from typing import Annotated, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from serving import serve


class State(TypedDict):
    turns: int
    messages: Annotated[list, add]


saver = SqliteSaver(sqlite3.connect(f"{sys.argv[1]}/langgraph.db", check_same_thread=False))
graphs = {}


def graph_of(turns: int):
    def model(state: State) -> dict:
        turn = state["turns"] + 1
        return {"turns": turn, "messages": [{"role": "assistant", "content": f"turn {turn}"}]}

    def tool(state: State) -> dict:
        return {"messages": [{"role": "tool", "content": "done"}]}

    graph = StateGraph(State)
    graph.add_node("model", model)
    graph.add_node("tool", tool)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda state: END if state["turns"] >= turns else "tool")
    graph.add_edge("tool", "model")
    return graph.compile(checkpointer=saver)


def run(turns: int) -> list[float]:
    graph = graphs.setdefault(turns, graph_of(turns))
    config = {"configurable": {"thread_id": str(time.time_ns())}, "recursion_limit": 10 * turns}
    start = time.perf_counter()
    # "sync": each checkpoint is there before the next step begins, as with the others.
    graph.invoke({"turns": 0, "messages": [{"role": "user", "content": "go"}]}, config, durability="sync")
    return [time.perf_counter() - start]


serve(run=run)
