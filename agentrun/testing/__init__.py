"""What tests of agents, tools and scripts around agentrun may use: nothing in here is needed to run it."""
