"""An agent of one's own: it counts the words it is told. In its place stands whatever can answer a text with a text."""

import agentrun
from agentrun import AgentSettings, Exchange, Said, Stretch, Turns, prompt_text


class WordCounter:
    """Says how many words it was told. `unit` is what it calls them."""

    def __init__(self, unit: str = "words") -> None:
        self.unit = unit

    async def run(self, stretch: Stretch) -> None:
        # `repeatable`: a turn changes nothing outside, so one that was broken off may simply be done again.
        await Turns(stretch, "word-counter", self.turn, repeatable=True).run()

    async def turn(self, exchange: Exchange) -> Said:
        told = prompt_text(exchange.stretch, exchange.transcript, remembers=True)
        if told.strip() == "help":
            return Said("", question="What shall I count?")
        await exchange.say("I have counted.\n\n")  # streams, and is kept as the draft
        await exchange.say(f"{len(told.split())} {self.unit}\n")
        return Said(exchange.text)


def make(settings: AgentSettings) -> WordCounter:
    """What the entry point in pyproject.toml names: makes the agent for one run."""
    return WordCounter(**settings.settings)


if __name__ == "__main__":
    session = agentrun.open_tree().new("an agent of my own")
    run = session.execute("How many words are these?", WordCounter())
    print(run.report())
    print("kept as", run.name)
