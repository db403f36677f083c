/* SPDX-License-Identifier: MIT
 *
 * snapshot_full: a small snapshot that has every key that PyTorch writes, as text for pickle_json.h.
 */
#ifndef CLV_SNAPSHOT_FULL_H
#define CLV_SNAPSHOT_FULL_H

static const char snapshot_full[] =
	"{'segments':[{'device':0,'address':2097152,'total_size':2097152,'allocated_size':1024,'active_size':1024,"
	"'requested_size':1000,'stream':140000,'segment_type':'small','segment_pool_id':{'$tuple':[0,3]},'is_expandable':true,"
	"'frames':[],'registration_counter':-1,'blocks':["
	"{'address':2097152,'size':1024,'requested_size':1000,'state':'active_allocated','frames':["
	"{'name':'f','filename':'a.py','line':7},{'name':'g','filename':'a.py','line':8}]},"
	"{'address':2098176,'size':512,'requested_size':300,'state':'active_pending_free','frames':[]},"
	"{'address':2098688,'size':2095616,'requested_size':0,'state':'inactive'}]},"
	"{'device':0,'address':1048576,'total_size':1048576,'allocated_size':0,'active_size':0,'requested_size':0,'stream':0,"
	"'segment_type':'large','segment_pool_id':{'$tuple':[0,0]},'is_expandable':false,'frames':[],'blocks':["
	"{'address':1048576,'size':1048576,'requested_size':77,'state':'inactive'}]}],"
	"'device_traces':[["
	"{'action':'segment_map','addr':2097152,'size':2097152,'stream':140000,'time_us':1796030623561599,'frames':[]},"
	"{'action':'alloc','addr':2097152,'size':1000,'stream':140000,'time_us':1796030623561600,'compile_context':'N/A',"
	"'user_metadata':'','frames':[{'name':'f','filename':'a.py','line':7},{'name':'g','filename':'a.py','line':8}]},"
	"{'action':'alloc','addr':2098176,'size':300,'stream':140000,'time_us':1796030623561700,'forward_frames':['x'],"
	"'frames':{'$ref':'frames'}},"
	"{'action':'free_requested','addr':2098176,'size':300,'stream':140000,'time_us':1796030623561800},"
	"{'action':'oom','device_free':123456,'size':4096,'stream':0,'time_us':1796030623561900},"
	"{'action':'snapshot','addr':0,'size':99,'stream':0,'time_us':1796030623562000},"
	"{'action':'from_the_future','what':[{'x':1}],'time_us':1796030623563599}]],"
	"'allocator_settings':{'PYTORCH_CUDA_ALLOC_CONF':'max_split_size_mb:20','max_split_size':20971520,"
	"'garbage_collection_threshold':0.75,'expandable_segments':true,'pinned_num_register_threads':1,"
	"'roundup_power2_divisions':{'1':1,'2':2,'4':4,'8':8,'32768':16,'65536':5,'x':6,'3':7}},"
	"'external_annotations':[{'stage':'START','name':'n','device':0,'time_us':1}],"
	"'probe':{'cap_mib':4000,'total':150109880320,'retries':3,'ooms':2,'device_left_mib':5,'conf':'-'}}";

#endif
