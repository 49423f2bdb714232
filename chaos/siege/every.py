"""All attacks, by name: importing a module of attacks adds its own to ``ATTACKS``."""

from chaos.siege import doors, jobs, memodb, memory, trust, web, work
from chaos.siege.stand import ATTACKS

assert doors and jobs and memodb and memory and trust and web and work

__all__ = ["ATTACKS"]
