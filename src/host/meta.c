/* SPDX-License-Identifier: MIT */
typedef int clv_placeholder_;
