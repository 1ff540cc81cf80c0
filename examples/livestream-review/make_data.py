"""Makes `data/`: two evenings of live shopping of the Tidewater Goods shop, the same bytes every time.

    python3 make_data.py

What happened last night (2025-06-12), compared with the stream a week before (2025-06-05):

* The audience was the same. Viewers, clicks and carts differ by noise only.
* At 21:00 the new arrivals were shown, with the coupon NEW15. Its end had been entered as 21:10 instead of
  22:30: from 21:10 on the checkout refused it, and most of those who used it gave up (`coupon_error`).
* The best-seller among the new products, the Drift Night Lamp, sold out at 21:07. The shop had four times
  as many of them a week before.

So revenue fell, with new products, from 21:10 on. Nothing else did. What is left in stock tells of the next
trouble: some products are below their safety stock and come back only weeks later.

Only `Random.random()` is used, because it is the one method whose sequence Python promises to keep for a
seed. Money is counted in cents. So the bytes do not depend on the machine or the Python version.
"""

from __future__ import annotations

import csv
import io
import os
import random
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from warehouse import DATA, TABLES

SEED = 20250612
WEEK_BEFORE, LAST_NIGHT = "2025-06-05", "2025-06-12"
START, END = 19 * 60 + 30, 22 * 60 + 30  # minutes of the day
NEW_ARRIVALS_SHOWN = 21 * 60
COUPON, COUPON_PERCENT = "NEW15", 15
COUPON_BROKEN_FROM = 21 * 60 + 10
USES_COUPON = 0.7  # of those who buy a new product while the coupon is offered
PAYS_WITHOUT_COUPON = 0.12  # of those whose coupon was refused
TAKES_SOMETHING_ELSE = 0.25  # of those who find their product sold out
TAKES_TWO = 0.18
CHANGES_MIND = 0.025
RETURNS = 0.035

LAUNCHED_FOR_NEW = "2025-05-13"  # 30 days before last night
ORDERS_PER_MINUTE = 10.5

Row = list[object]


class Product(NamedTuple):
    product_id: str
    name: str
    category: str
    launched: str
    cents: int
    appeal: float
    stock: int
    safety_stock: int
    restock_date: str

    @property
    def is_new(self) -> bool:
        return self.launched >= LAUNCHED_FOR_NEW


class Segment(NamedTuple):
    start: int
    name: str
    host: str


class Evening(NamedTuple):
    date: str
    coupon_broken_from: int
    short_of: dict[str, int]  # pieces in stock, of products that were scarcer than usual


PRODUCTS = [
    Product("P-101", "Oak Chopping Board", "kitchen", "2024-03-11", 3490, 1.2, 240, 40, "2025-06-20"),
    Product("P-102", "Stoneware Bowl Set", "kitchen", "2024-03-11", 4290, 1.1, 210, 40, "2025-06-20"),
    Product("P-103", "Carbon Steel Pan", "kitchen", "2024-09-02", 5490, 1.0, 190, 30, "2025-06-18"),
    Product("P-104", "Pepper Mill", "kitchen", "2023-11-20", 2790, 0.9, 175, 30, "2025-06-18"),
    Product("P-105", "Tea Towel Trio", "textiles", "2023-11-20", 1690, 1.3, 260, 50, "2025-06-16"),
    Product("P-106", "Wool Throw", "textiles", "2024-10-07", 7990, 0.5, 120, 20, "2025-07-10"),
    Product("P-107", "Linen Cushion", "textiles", "2024-05-13", 2990, 0.8, 150, 30, "2025-06-27"),
    Product("P-108", "Beeswax Candle", "lighting", "2023-10-02", 1290, 1.4, 250, 60, "2025-06-16"),
    Product("P-109", "Brass Lantern", "lighting", "2024-11-04", 4490, 0.6, 130, 20, "2025-07-03"),
    Product("P-110", "Olive Soap Bar", "care", "2023-09-04", 690, 1.5, 310, 80, "2025-06-16"),
    Product("P-111", "Bath Salt Jar", "care", "2024-02-05", 1890, 0.9, 160, 40, "2025-07-01"),
    Product("P-112", "Bamboo Brush", "care", "2024-02-05", 990, 1.0, 200, 50, "2025-06-19"),
    Product("P-113", "Packing Cubes", "travel", "2024-06-17", 2490, 0.8, 165, 30, "2025-06-23"),
    Product("P-114", "Steel Bottle", "travel", "2024-06-17", 2290, 1.1, 190, 45, "2025-07-04"),
    Product("P-115", "Seed Starter Kit", "garden", "2025-02-10", 1990, 0.8, 140, 30, "2025-06-24"),
    Product("P-201", "Rain Poncho", "travel", "2025-04-24", 3590, 0.9, 160, 30, "2025-06-25"),
    Product("P-202", "Clay Oil Jar", "kitchen", "2025-04-10", 2690, 0.8, 150, 30, "2025-06-25"),
    Product("P-301", "Drift Night Lamp", "lighting", "2025-05-20", 4990, 2.1, 360, 40, "2025-06-26"),
    Product("P-302", "Sea Salt Hand Balm", "care", "2025-05-22", 1490, 1.0, 190, 40, "2025-06-17"),
    Product("P-303", "Linen Apron", "textiles", "2025-05-28", 2990, 0.8, 180, 40, "2025-07-08"),
    Product("P-304", "Fold Kettle", "travel", "2025-06-02", 3990, 0.9, 150, 30, "2025-06-19"),
    Product("P-305", "Cork Yoga Mat", "travel", "2025-05-16", 4490, 0.7, 140, 25, "2025-07-02"),
    Product("P-306", "Herb Window Box", "garden", "2025-06-03", 2490, 0.8, 170, 30, "2025-06-20"),
]
SEGMENTS = [
    Segment(START, "welcome", "Ida"),
    Segment(20 * 60 + 15, "kitchen hour", "Jonas"),
    Segment(NEW_ARRIVALS_SHOWN, "new arrivals", "Ida"),
    Segment(22 * 60, "last call", "Jonas"),
]

EVENINGS = [
    Evening(WEEK_BEFORE, coupon_broken_from=END, short_of={}),
    Evening(
        LAST_NIGHT,
        coupon_broken_from=COUPON_BROKEN_FROM,
        short_of={"P-301": 90, "P-303": 88, "P-305": 64, "P-111": 90, "P-114": 108},
    ),
]

# Of all viewers, who came how. Ordered, because the bytes of the file follow this order.
SOURCES = [("followers", 0.52), ("recommended", 0.33), ("paid ads", 0.15)]


def main() -> None:
    DATA.mkdir(exist_ok=True)
    chance = random.Random(SEED)
    orders: list[Row] = []
    traffic: list[Row] = []
    stock: list[Row] = []
    for evening in EVENINGS:
        sales = Sales(chance, evening, first_order=len(orders) + 1)
        orders += sales.orders
        traffic += traffic_of(chance, evening)
        stock += stock_after(evening, sales)
    for table, rows in (("orders", orders), ("traffic", traffic), ("stock", stock)):
        write(DATA / f"{table}.csv", TABLES[table], rows)
        print(f"data/{table}.csv: {len(rows)} rows", file=sys.stderr)


class Sales:
    """One evening's orders, minute by minute, while the stock of each product lasts."""

    def __init__(self, chance: random.Random, evening: Evening, first_order: int) -> None:
        self.evening = evening
        self.orders: list[Row] = []
        self.sold: Counter[str] = Counter()
        self.sold_out_at: dict[str, str] = {}
        self._chance = chance
        self._first_order = first_order
        for minute in range(START, END):
            expected = ORDERS_PER_MINUTE * audience(minute) * (0.85 + 0.3 * chance.random())
            seconds = sorted(int(60 * chance.random()) for _ in range(rounded(chance, expected)))
            for second in seconds:
                self._visit(minute, second)

    def stock_before(self, product: Product) -> int:
        return self.evening.short_of.get(product.product_id, product.stock)

    def _visit(self, minute: int, second: int) -> None:
        """Somebody wants to buy something. What is sold out leaves no order, or one for another product."""
        product = self._wish(minute)
        if self._left(product) == 0:
            if self._chance.random() >= TAKES_SOMETHING_ELSE:
                return
            product = self._wish(minute)
            if self._left(product) == 0:
                return
        quantity = min(1 + int(self._chance.random() < TAKES_TWO), self._left(product))
        self._check_out(product, quantity, minute, second)

    def _wish(self, minute: int) -> Product:
        segment = segment_at(minute)
        return pick(self._chance, [(product, interest(product, segment)) for product in PRODUCTS])

    def _left(self, product: Product) -> int:
        return self.stock_before(product) - self.sold[product.product_id]

    def _check_out(self, product: Product, quantity: int, minute: int, second: int) -> None:
        coupon = COUPON if self._uses_coupon(product, minute) else ""
        status, reason = self._outcome()
        if coupon and minute >= self.evening.coupon_broken_from:
            coupon, status, reason = self._refuse_coupon(status, reason)
        full = quantity * product.cents
        discount = full * COUPON_PERCENT // 100 if coupon else 0
        if status != "cancelled":
            self._take(product, quantity, minute)
        segment = segment_at(minute)
        self.orders.append(
            [
                f"O-{self._first_order + len(self.orders):05}",
                self.evening.date,
                f"{clock(minute)}:{second:02}",
                clock(minute),
                segment.name,
                segment.host,
                product.product_id,
                product.name,
                product.category,
                product.launched,
                quantity,
                money(product.cents),
                coupon,
                money(discount),
                money(full - discount),
                status,
                reason,
            ]
        )

    def _uses_coupon(self, product: Product, minute: int) -> bool:
        return product.is_new and minute >= NEW_ARRIVALS_SHOWN and self._chance.random() < USES_COUPON

    def _outcome(self) -> tuple[str, str]:
        luck = self._chance.random()
        if luck < CHANGES_MIND:
            return "cancelled", "changed_mind"
        if luck < CHANGES_MIND + RETURNS:
            return "refunded", "returned"
        return "paid", ""

    def _refuse_coupon(self, status: str, reason: str) -> tuple[str, str, str]:
        if self._chance.random() < PAYS_WITHOUT_COUPON:
            return "", status, reason
        return COUPON, "cancelled", "coupon_error"

    def _take(self, product: Product, quantity: int, minute: int) -> None:
        self.sold[product.product_id] += quantity
        if self._left(product) == 0:
            self.sold_out_at[product.product_id] = clock(minute)


def traffic_of(chance: random.Random, evening: Evening) -> Iterable[Row]:
    """What the streaming platform counted. It is the same on both evenings, but for noise."""
    for minute in range(START, END):
        for source, share in SOURCES:
            viewers = int(2400 * share * audience(minute) * (0.94 + 0.12 * chance.random()))
            joins = int(viewers * (0.05 + 0.02 * chance.random()))
            clicks = int(viewers * (0.075 + 0.015 * chance.random()))
            carts = int(clicks * (0.19 + 0.04 * chance.random()))
            yield [evening.date, clock(minute), source, viewers, joins, clicks, carts]


def stock_after(evening: Evening, sales: Sales) -> Iterable[Row]:
    for product in PRODUCTS:
        yield [
            evening.date,
            product.product_id,
            product.name,
            product.launched,
            sales.stock_before(product),
            sales.sold[product.product_id],
            product.safety_stock,
            sales.sold_out_at.get(product.product_id, ""),
            product.restock_date if evening.date == LAST_NIGHT else "",
        ]


def audience(minute: int) -> float:
    """How full the stream is: rising for 40 minutes, then level, leaving in the last quarter of an hour."""
    return min(1.0, 0.4 + 0.6 * (minute - START) / 40, 0.5 + 0.5 * (END - minute) / 15)


def interest(product: Product, segment: Segment) -> float:
    """What is being shown sells."""
    if segment.name == "new arrivals" and product.is_new:
        return product.appeal * 5
    if segment.name == "kitchen hour" and product.category == "kitchen":
        return product.appeal * 3
    return product.appeal


def segment_at(minute: int) -> Segment:
    return [segment for segment in SEGMENTS if segment.start <= minute][-1]


def pick(chance: random.Random, weighted: Sequence[tuple[Product, float]]) -> Product:
    left = chance.random() * sum(weight for _, weight in weighted)
    for item, weight in weighted:
        left -= weight
        if left < 0:
            return item
    return weighted[-1][0]


def rounded(chance: random.Random, expected: float) -> int:
    """`expected` on average, in whole numbers."""
    return int(expected) + int(chance.random() < expected % 1)


def clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02}"


def write(path: Path, header: Iterable[str], rows: Iterable[Row]) -> None:
    """Replaces the file as a whole, so that a query at the same time never reads half of it."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(header)
    table.writerows(rows)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(text.getvalue().encode())
    draft.replace(path)


if __name__ == "__main__":
    main()
