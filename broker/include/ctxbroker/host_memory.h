// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Memory for hosts in C: device memory of tenants, also such that several processes share, and host
 * memory that graphs use without staging. host.h, which says what holds for all functions, includes
 * this header.
 */
#ifndef CTXBROKER_HOST_MEMORY_H
#define CTXBROKER_HOST_MEMORY_H

#include "ctxbroker/host.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sources of a tenant's memory: ctxb_tenant_options.memory. */
#define CTXB_MEMORY_AUTO 0   /**< The policy chooses. If it does not: CTXB_MEMORY_POOL. */
#define CTXB_MEMORY_DRIVER 1 /**< The driver's own allocations, as without a broker. */
#define CTXB_MEMORY_POOL 2   /**< Pools of the tenant's own: a free waits for no neighbour. */

/** Allocates device memory, which the tenant holds until release or close.
 *
 * @param bytes    its size, at least 1.
 * @param address  gets the CUdeviceptr.
 * @return CTXB_ERROR_INVALID_ARGUMENT for 0 bytes; else as ctxb_tenant_lease. */
CTXB_EXPORT ctxb_status ctxb_tenant_allocate(ctxb_tenant* tenant, int32_t device, uint64_t bytes,
                                             uint64_t* address);
/** Gives device memory back. 0 does nothing. If hung work stands in the way, the memory is given
 * back when that work ends, and counts as held until then.
 *
 * @return CTXB_ERROR_INVALID_ARGUMENT when the tenant does not hold it; CTXB_ERROR_DRIVER when the
 *         driver refuses to free it. The tenant then still holds it. */
CTXB_EXPORT ctxb_status ctxb_tenant_release(ctxb_tenant* tenant, uint64_t address);
/** Returns the bytes of device memory from ctxb_tenant_allocate and ctxb_tenant_allocate_shareable
 * that were not given back; 0 for null. [any] */
CTXB_EXPORT uint64_t ctxb_tenant_memory_bytes(const ctxb_tenant* tenant);

/* ---- Memory that processes share -------------------------------------------------------------*/

/** Allocates device memory that other processes can import. The tenant holds it until
 * ctxb_tenant_release or close. A loss of the lease leaves it and its address as they are. Some
 * devices share memory by CUDA's legacy IPC only, and the memory differs then, as
 * ctxbroker::DeviceMemory says.
 *
 * @param bytes    the size, at least 1. Gets the real size, in whole units of the device.
 * @param address  gets the CUdeviceptr.
 * @return CTXB_ERROR_UNAVAILABLE for a device that cannot share memory; else as
 *         ctxb_tenant_allocate. */
CTXB_EXPORT ctxb_status ctxb_tenant_allocate_shareable(ctxb_tenant* tenant, int32_t device,
                                                       uint64_t* bytes, uint64_t* address);
/** Makes a file descriptor of memory from ctxb_tenant_allocate_shareable. Send it to the other
 * process over a Unix socket (SCM_RIGHTS), and close it.
 *
 * @param descriptor  gets the descriptor.
 * @return CTXB_ERROR_INVALID_ARGUMENT for memory that is not from that function;
 *         CTXB_ERROR_CONTEXT_LOST for memory that has ended with its lease;
 *         CTXB_ERROR_OUT_OF_MEMORY if there can be no more descriptors; CTXB_ERROR_DRIVER. */
CTXB_EXPORT ctxb_status ctxb_tenant_export_memory(ctxb_tenant* tenant, uint64_t address,
                                                  int32_t* descriptor);
/** Maps memory of another process, until ctxb_tenant_release or close. What either process writes
 * there, the other one sees. Nobody waits for the other one's work.
 *
 * @param descriptor  what ctxb_tenant_export_memory or cuMemExportToShareableHandle gave there. It
 *                    stays the caller's, who can close it after this call.
 * @param bytes       the size that the other process has allocated.
 * @param address     gets the CUdeviceptr.
 * @return CTXB_ERROR_INVALID_ARGUMENT for a descriptor of something else, for memory of another
 *         device, for more bytes than the memory has, and, with legacy IPC, for this process's own
 *         memory; else as ctxb_tenant_allocate_shareable. */
CTXB_EXPORT ctxb_status ctxb_tenant_import_memory(ctxb_tenant* tenant, int32_t device,
                                                  int32_t descriptor, uint64_t bytes,
                                                  uint64_t* address);

/* ---- Host memory that graphs use without staging ----------------------------------------------*/

/** A block of host memory that the broker has registered with CUDA, for all devices.
 *
 * A graph recognises buffers in such a block by their addresses, and copies them straight to the
 * device and from there. A buffer that begins in a block must end in it. A job in flight owns its
 * buffers in a block: leave its inputs as they are, and do not use its outputs, until the job is
 * finished. ctxbroker::HostMemory says the rest, such as when memory is registered. One thread at a
 * time may use a handle. */
typedef struct ctxb_host_memory ctxb_host_memory;

/** Makes host memory that begins at a page and is filled with zeros. It works without a driver,
 * too. [any]
 *
 * @param bytes   the size, at least 1.
 * @param memory  gets the handle.
 * @return CTXB_ERROR_INVALID_ARGUMENT for 0 bytes; CTXB_ERROR_OUT_OF_HOST_MEMORY;
 *         CTXB_ERROR_SYSTEM_LIMIT if there can be no more descriptors. */
CTXB_EXPORT ctxb_status ctxb_host_memory_make(ctxb_broker* broker, uint64_t bytes,
                                              ctxb_host_memory** memory);
/** Registers memory that the host has already. It stays the host's, who keeps it until
 * ctxb_host_memory_destroy has said that it is released. [any]
 *
 * @param address  its first byte.
 * @param bytes    the size, at least 1.
 * @param memory   gets the handle.
 * @return CTXB_ERROR_INVALID_ARGUMENT for null, 0 bytes, and memory that overlaps with another
 *         block of the broker. */
CTXB_EXPORT ctxb_status ctxb_host_memory_register(ctxb_broker* broker, void* address,
                                                  uint64_t bytes, ctxb_host_memory** memory);
/** Returns the first byte; null for null. [any] */
CTXB_EXPORT void* ctxb_host_memory_data(const ctxb_host_memory* memory);
/** Returns 1 if CUDA knows the memory now, else 0. If the driver has refused it, graphs copy it as
 * other memory, and a record of the topic "host memory" says why. [any] */
CTXB_EXPORT uint32_t ctxb_host_memory_is_registered(const ctxb_host_memory* memory);
/** Gives the memory up. Null does nothing. Memory from ctxb_host_memory_make lives on for jobs that
 * use it. Memory from ctxb_host_memory_register is unregistered in this call, which waits for all
 * kernels on the device, at most for ctxb_broker_options.end_timeout_ms. It may come after
 * ctxb_broker_close. [any]
 *
 * @param released  gets 1 if the host may free or reuse memory from ctxb_host_memory_register; 0 if
 *                  a job uses it or work hangs: then keep the memory until the process ends. May be
 *                  null. */
CTXB_EXPORT void ctxb_host_memory_destroy(ctxb_host_memory* memory, uint32_t* released);

#ifdef __cplusplus
}
#endif

#endif
