/* SPDX-License-Identifier: MIT
 *
 * plan_sample: a small plan as `cleave plan -o` writes it: 3 layers on this rank, 4 experts, buffers of several types; one
 * that is not divided by experts, one with strides of its own. Owns nothing.
 */
#ifndef CLV_TESTS_PLAN_SAMPLE_H
#define CLV_TESTS_PLAN_SAMPLE_H

enum {
	SAMPLE_LAYERS = 3,
	SAMPLE_EXPERTS = 4,
	SAMPLE_BUFFERS = 5,
	SAMPLE_W13 = 4 * 96 * 1024,
	SAMPLE_S13 = 4 * 96 * 128,
	SAMPLE_W2 = 4 * 512 * 96 * 2,
	SAMPLE_PACKED = 4 * 3 * 100 * 4, /* 97 rows, padded to 100 */
	SAMPLE_SCALAR = 4,
	SAMPLE_LAYER_BYTES = SAMPLE_W13 + SAMPLE_S13 + SAMPLE_W2 + SAMPLE_PACKED + SAMPLE_SCALAR
};

static const char sample_plan[] =
	"{\"version\": 1, \"model\": \"SampleForCausalLM\", \"backend\": \"nvfp4-cutlass\", \"strategy\": \"ping-pong\", "
	"\"rank\": 2, \"moe_layers\": 6, \"layers_local\": 3, \"experts_total\": 8, \"experts_local\": 4, \"hidden\": 2048,\n"
	" \"buffers\": [\n"
	"  {\"name\": \"w13_weight\", \"shape\": [4, 96, 1024], \"dtype\": \"uint8\", \"bytes\": 393216},\n"
	"  {\"name\": \"w13_weight_scale\", \"shape\": [4, 96, 128], \"dtype\": \"float8_e4m3fn\", \"bytes\": 49152, "
	"\"zeroed\": true},\n"
	"  {\"name\": \"w2_weight\", \"shape\": [4, 512, 96], \"dtype\": \"bfloat16\", \"bytes\": 393216},\n"
	"  {\"name\": \"w2_weight_scale\", \"shape\": [4, 97, 3], \"strides\": [300, 1, 100], \"dtype\": \"int32\", "
	"\"bytes\": 4800},\n"
	"  {\"name\": \"input_scale\", \"shape\": [], \"dtype\": \"float32\", \"bytes\": 4}],\n"
	" \"layer_bytes\": 840388, \"weights_bytes\": 2521164,\n"
	" \"reservations\": [{\"name\": \"w13_weight\", \"bytes\": 393216, \"count\": 1, \"after_n\": 3, \"uses\": 5, \"hard\": true},\n"
	"  {\"name\": \"w2_weight\", \"bytes\": 393216, \"count\": 1, \"after_n\": 3, \"hard\": false}],\n"
	" \"fits\": true, \"headroom_bytes\": null, \"warnings\": []}\n";

#endif
