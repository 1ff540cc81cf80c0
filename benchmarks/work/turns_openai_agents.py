"""A run of openai-agents, a model that is scripted and a tool that does nothing, with SQLiteSession: `FOLDER`."""

import asyncio
import sys
import time

from agents import Agent, ModelResponse, Runner, SQLiteSession, Usage, function_tool, set_tracing_disabled
from agents.models.interface import Model
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from serving import serve

set_tracing_disabled(True)
loop = asyncio.new_event_loop()


class Scripted(Model):
    def __init__(self, turns: int) -> None:
        self.left = turns

    async def get_response(self, *args, **kwargs) -> ModelResponse:
        self.left -= 1
        if self.left:
            call_id = f"call-{self.left}"
            output = ResponseFunctionToolCall(arguments="{}", call_id=call_id, name="nothing", type="function_call")
        else:
            text = ResponseOutputText(text="done", type="output_text", annotations=[])
            output = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


@function_tool
def nothing() -> str:
    return "done"


def run(turns: int) -> list[float]:
    session = SQLiteSession(str(time.time_ns()), f"{sys.argv[1]}/agents.db")
    agent = Agent(name="a", model=Scripted(turns), tools=[nothing])
    start = time.perf_counter()
    result = loop.run_until_complete(Runner.run(agent, "go", session=session, max_turns=turns + 1))
    assert result.final_output == "done"
    return [time.perf_counter() - start]


serve(run=run)
