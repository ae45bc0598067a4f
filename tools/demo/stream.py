"""Batches of packed conversations, made on the fly by worker processes, in a fixed order.

A batch is one flat run of tokens cut into rows of equal length; conversations never cross a row.
Batch number b depends on the seed and b alone, whatever the number of workers.
"""

import multiprocessing
import os
from dataclasses import dataclass

import numpy as np

import mixture
import render
from encode import Encoder
from words import Draw

SHORT, LONG = 1024, 16384
LONGEST = 9500  # tokens of the longest conversation; positions beyond are not trained


@dataclass
class Plan:
    seed: int
    tokens: int  # in a batch
    batches: int
    long_from: float = 0.2  # share of the training after which long batches come in
    long_share: float = 0.2
    first: int = 0

    def row(self, batch: int) -> int:
        """Row length of a batch. Long ones are spread evenly."""
        if batch < self.long_from * self.batches:
            return SHORT
        return LONG if int((batch + 1) * self.long_share) > int(batch * self.long_share) else SHORT


def conversation(d: Draw, encoder: Encoder, long: bool):
    if long:
        words = int(300 * (20 ** d.rng.random()))
        task = mixture.long_one(d, words)
    else:
        task = mixture.one(d)
    thinking = task.think == "on" or (task.think == "any" and d.chance(0.5))
    return encoder.conversation(render.pieces(task, thinking))


def batch(plan: Plan, number: int, encoder: Encoder):
    """(tokens uint16, grades uint8, positions uint16, starts int32 with the end appended, row length)"""
    d = Draw(f"{plan.seed}-{number}")
    d.early = number < 0.15 * plan.batches
    row = plan.row(number)
    tokens, grades = np.zeros(plan.tokens, np.uint16), np.zeros(plan.tokens, np.uint8)
    positions, starts = np.zeros(plan.tokens, np.uint16), []
    waiting, limit = [], LONGEST if row == LONG else row
    for base in range(0, plan.tokens, row):
        used = 0
        while row - used > 16:
            fits = next((i for i, c in enumerate(waiting) if len(c[0]) <= row - used), None)
            if fits is None:
                if len(waiting) > 24:
                    break
                ids, marks = conversation(d, encoder, row == LONG and d.chance(0.75))
                if len(ids) <= limit:
                    waiting.append((ids, marks))
                continue
            ids, marks = waiting.pop(fits)
            at = base + used
            tokens[at : at + len(ids)] = ids
            grades[at : at + len(ids)] = marks
            positions[at : at + len(ids)] = np.arange(len(ids))
            starts.append(at)
            used += len(ids)
        if used < row:
            starts.append(base + used)
            positions[base + used : base + row] = np.arange(row - used)
    return tokens, grades, positions, np.array(starts + [plan.tokens], np.int32), row


def work(plan: Plan, worker: int, workers: int, folder: str, queue) -> None:
    encoder = Encoder(folder)
    for number in range(plan.first + worker, plan.batches, workers):
        queue.put(batch(plan, number, encoder))


def batches(plan: Plan, folder: str, workers: int = 0):
    """Yields all batches of the plan from `plan.first` on."""
    workers = workers or max(1, (os.cpu_count() or 2) - 2)
    context = multiprocessing.get_context("fork")
    queues = [context.Queue(maxsize=4) for _ in range(workers)]
    processes = [context.Process(target=work, args=(plan, i, workers, folder, q), daemon=True) for i, q in enumerate(queues)]
    for process in processes:
        process.start()
    for number in range(plan.first, plan.batches):
        yield queues[(number - plan.first) % workers].get()
    for process in processes:
        process.join(timeout=5)
