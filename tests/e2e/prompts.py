"""A hundred prompts of every kind that has broken a tokeniser, a cache or a block boundary before."""

from __future__ import annotations

_TOPICS = [
    "the sea",
    "a bridge",
    "the number seven",
    "an old clock",
    "winter bread",
    "a railway",
    "moss",
    "glass",
    "the moon",
    "salt",
]
_SHORT = [
    "Write one sentence about {}.",
    "Why do people like {}? Answer briefly.",
    "List three words that go with {}.",
]
_CHINESE = [
    "水的沸点是多少？",
    "请用一句话介绍北京。",
    "三加五等于几？",
    "写一句关于春天的诗。",
    "什么是计算机？",
    "“系统繁忙”是什么意思？",
    "上海在哪个国家？",
    "把 hello 翻译成中文。",
    "月亮为什么会亮？",
    "推荐一种水果。",
]
_EMOJI = [
    "👋🏽 Hi!",
    "What does 🧑‍🚀 mean?",
    "Continue: 🍎🍐🍊",
    "🇫🇷 is the flag of",
    "Explain 😅 vs 😂.",
    "👨‍👩‍👧‍👦 family in one word?",
    "Rate this: ⭐⭐⭐☆☆",
    "zero\u200bwidth\u200dtest",
    "naïve café Ångström ﬁ",
    "שלום 🌍 مرحبا",
]
_CODE = [
    "def fibonacci(n):\n    ",
    "for (int i = 0; i < n; i++) {\n\t",
    "SELECT name, COUNT(*) FROM users WHERE ",
    "Fix this: `print 'hello'` in Python 3.",
    '{"name": "diphase", "version": ',
    "#!/bin/sh\nset -eu\n",
    "What does `lambda x: x**2` do?",
    "<html>\n  <body>\n    <p>",
    "fn main() {\n    println!(",
    "import numpy as np\n\n\n\na = np.",
]


def _paragraph(index: int, words: int) -> str:
    """Plain English of about `words` words; no two indices share a first block."""
    nouns = ["river", "engineer", "lamp", "garden", "letter", "harbour", "violin", "cloud", "market", "stone", "window"]
    verbs = ["carries", "repairs", "lights", "follows", "answers", "shelters", "praises", "hides", "counts", "warms"]
    sentences = []
    for step in range(words // 8):
        k = index * 37 + step * 5
        subject, verb, thing = nouns[k % 11], verbs[(k * 3 + step) % 10], nouns[(k * 7 + 2 * step) % 11]
        sentences.append(f"On day {step + index} the {subject} {verb} the old {thing}.")
    return f"Story {index}. " + " ".join(sentences)


def hundred() -> list[str]:
    """The prompts, in a fixed order; from 3 to about 1,500 tokens."""
    short = [pattern.format(topic) for pattern in _SHORT for topic in _TOPICS]
    # Lengths that straddle one, two and more blocks of 64 tokens, and a few long ones.
    medium = [_paragraph(index, words) for index, words in enumerate([40, 44, 48, 52, 56, 84, 88, 92, 96, 100] * 3)]
    long = [
        _paragraph(100 + index, words)
        for index, words in enumerate([200, 200, 250, 250, 300, 300, 400, 500, 700, 1000])
    ]
    prompts = short + _CHINESE + _EMOJI + _CODE + medium + long
    assert len(prompts) == len(set(prompts)) == 100
    return prompts
