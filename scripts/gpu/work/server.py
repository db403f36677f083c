#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""An HTTP server that generates text with a mixture-of-experts model of random weights (Qwen3-MoE of about a billion
parameters). POST /generate {"group", "index", "prompt", "tokens"}; GET /stats. A batch is the requests of one group, in their
order, so that the same requests are computed in the same shapes and answers can be compared word by word."""
import argparse
import asyncio
import concurrent.futures
import os
import zlib

import torch
from aiohttp import web
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

import proof
from proof import MIB

SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]


class Model:
    def __init__(self, args):
        self.device = torch.device(args.device)
        # Sums in an order that does not change from run to run, so that answers can be compared.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        torch.backends.cuda.enable_cudnn_sdp(False) # its answers differ from run to run, under any allocator
        config = Qwen3MoeConfig(
            vocab_size=32000, hidden_size=args.hidden, intermediate_size=3 * args.hidden, moe_intermediate_size=args.hidden // 8 * 3,
            num_hidden_layers=args.layers, num_attention_heads=args.hidden // 64, num_key_value_heads=4, head_dim=128,
            num_experts=args.experts, num_experts_per_tok=4, max_position_embeddings=8192)
        torch.manual_seed(7)
        torch.set_default_dtype(torch.bfloat16)
        with self.device:
            self.model = Qwen3MoeForCausalLM(config).eval()
        torch.set_default_dtype(torch.float32)
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self.vocabulary = config.vocab_size

    def encode(self, text):
        return [zlib.crc32(word.encode()) % self.vocabulary for word in text.split()]

    @staticmethod
    def decode(tokens):
        words = []
        for token in tokens:
            word = ""
            while True:
                token, part = divmod(token, len(SYLLABLES))
                word += SYLLABLES[part]
                if not token:
                    break
            words.append(word)
        return " ".join(words)

    @torch.inference_mode()
    def generate(self, requests):
        """Greedy decoding of one batch, prompts padded on the left."""
        prompts = [self.encode(request["prompt"]) for request in requests]
        longest = max(map(len, prompts))
        given = torch.tensor([[0] * (longest - len(p)) + p for p in prompts], device=self.device)
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=self.device)
        place = (mask.cumsum(-1) - 1).clamp_(min=0)
        cache, made = None, []
        for _ in range(max(request["tokens"] for request in requests)):
            out = self.model(input_ids=given, attention_mask=mask, position_ids=place, past_key_values=cache, use_cache=True,
                             logits_to_keep=1)
            cache = out.past_key_values
            given = out.logits[:, -1].argmax(-1, keepdim=True)
            made.append(given)
            mask = torch.cat([mask, mask.new_ones(len(requests), 1)], 1)
            place = place[:, -1:] + 1
        rows = torch.cat(made, 1).tolist()
        return [self.decode(row[:request["tokens"]]) for row, request in zip(rows, requests)]


def on_last_processor():
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


class Service:
    def __init__(self, model, group_size):
        self.model, self.group_size = model, group_size
        self.waiting = {}
        # Processors are not equally fast: both servers that are compared compute on the same one, in turns.
        self.worker = concurrent.futures.ThreadPoolExecutor(1, initializer=on_last_processor)
        self.stopped = asyncio.Event()

    async def generate(self, request):
        asked = await request.json()
        answer = asyncio.get_running_loop().create_future()
        group = self.waiting.setdefault(asked["group"], [])
        group.append((asked["index"], asked, answer))
        if len(group) == self.group_size:
            del self.waiting[asked["group"]]
            group.sort(key=lambda entry: entry[0])
            try:
                texts = await asyncio.get_running_loop().run_in_executor(
                    self.worker, self.model.generate, [entry[1] for entry in group])
                for entry, text in zip(group, texts):
                    entry[2].set_result(text)
            except Exception as error:
                for entry in group:
                    entry[2].set_exception(web.HTTPInternalServerError(text=f"{type(error).__name__}: {error}"))
        return web.json_response({"text": await answer})

    async def stats(self, _):
        found = {"parameters": self.model.parameters}
        if self.model.device.type == "cuda":
            found |= {"peak_reserved_mib": torch.cuda.max_memory_reserved() // MIB,
                      "peak_allocated_mib": torch.cuda.max_memory_allocated() // MIB,
                      "backend": torch.cuda.get_allocator_backend()}
        return web.json_response(found | {"preloaded": proof.preloaded()})

    async def stop(self, _):
        self.stopped.set()
        return web.json_response({})


async def serve(args):
    service = Service(Model(args), args.group)
    app = web.Application()
    app.add_routes([web.post("/generate", service.generate), web.get("/stats", service.stats), web.post("/stop", service.stop)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(f"PORT {runner.addresses[0][1]}", flush=True)
    await service.stopped.wait()
    await asyncio.sleep(0.2)
    await runner.cleanup()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--experts", type=int, default=32)
    parser.add_argument("--group", type=int, default=16, help="requests a batch")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
