# SPDX-License-Identifier: Apache-2.0
"""What the example graphs compute, in NumPy with 64-bit floats."""
import numpy as np


def decode_srgb(codes):
    value = codes.astype(np.float64) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055)**2.4)


def encode_srgb(linear):
    return np.where(linear <= 0.0031308, linear * 12.92, 1.055 * np.maximum(linear, 0)**(1 / 2.4) - 0.055)


# ---- Images: rows, columns, components; straight alpha ----------------------------------------


def blur(image, radius):
    reach = int(np.ceil(radius))
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / (radius / 3))**2)
    weights /= weights.sum()
    sums = image.copy()
    sums[:, :, :3] *= sums[:, :, 3:]
    for axis in (0, 1):
        margin = [(0, 0)] * 3
        margin[axis] = (reach, reach)
        padded = np.pad(sums, margin, mode="edge")
        count = sums.shape[axis]
        sums = sum(weight * np.take(padded, np.arange(i, i + count), axis=axis)
                   for i, weight in enumerate(weights))
    sums[:, :, :3] /= sums[:, :, 3:]
    return sums


def colour_matrix(image, parameters):
    matrix = np.array([[parameters.get(f"m{row}{column}", float(row == column)) for column in range(3)]
                       for row in range(3)])
    result = image.copy()
    result[:, :, :3] = image[:, :, :3] @ matrix.T
    return result


def merge_over(front, back, weights):
    behind = back[:, :, 3:] * (1 - front[:, :, 3:])
    alpha = front[:, :, 3:] + behind
    colours = (front[:, :, :3] * front[:, :, 3:] + back[:, :, :3] * behind) / np.where(alpha > 0, alpha, 1)
    over = np.concatenate([np.where(alpha > 0, colours, 0), alpha], axis=2)
    return back + (over - back) * weights


def compositing(plate, actor, mask, nodes):
    """RGB of the comp. The arguments are what the files hold."""
    plate = np.concatenate([plate.astype(np.float64), np.ones((*plate.shape[:2], 1))], axis=2)
    actor = np.concatenate([decode_srgb(actor[:, :, :3]), actor[:, :, 3:] / 255], axis=2)
    soft = blur(plate, nodes["soften"]["parameters"]["radius"])
    warm = colour_matrix(actor, nodes["warm"]["parameters"])
    merge = nodes["merge"]["parameters"]
    assert merge["operation"] == "over"
    return merge_over(warm, soft, mask.astype(np.float64) * merge["amount"])[:, :, :3]


# ---- Sound: frames, channels -------------------------------------------------------------------


def late(sound, frames):
    return np.pad(sound, ((frames, 0), (0, 0)))[:len(sound)] if frames else sound


def compressor(sound, key, parameters, rate):
    """Without its latency: the key is heard earlier by the look-ahead."""
    peak = np.abs(key).max(axis=1)
    with np.errstate(divide="ignore"):
        excess = np.maximum(20 * np.log10(peak) - parameters["threshold"], 0)
    wanted = excess * (1 - 1 / parameters["ratio"])
    attack, release = (np.exp(-1000 / (parameters[name] * rate)) for name in ("attack", "release"))
    early = round(parameters["look_ahead"] / 1000 * rate)
    reduction = np.zeros(len(wanted) + early)
    now = 0.0
    for i, want in enumerate(np.pad(wanted, (0, early)).tolist()):
        now = want + (now - want) * (attack if want > now else release)
        reduction[i] = now
    return sound * 10**(-reduction[early:, None] / 20)


def high_pass(sound, parameters, rate):
    """Without its latency."""
    count = parameters["taps"]
    assert parameters["kind"] == "high-pass" and count % 2 == 1
    half = (count - 1) // 2
    t = np.arange(-half, half + 1)
    taps = 2 * parameters["cutoff"] / rate * np.sinc(2 * parameters["cutoff"] / rate * t)
    phase = np.pi * t / (half + 1)
    taps *= 0.42 + 0.5 * np.cos(phase) + 0.08 * np.cos(2 * phase)
    taps = -taps / taps.sum()
    taps[half] += 1
    return np.stack([np.convolve(channel, taps)[half:half + len(sound)] for channel in sound.T], axis=1)


def delay(sound, parameters, rate):
    """The echoes alone."""
    assert parameters["mix"] == 1
    frames = round(parameters["time_ms"] / 1000 * rate)
    echoes = np.zeros_like(sound)
    again, level = late(sound, frames), 1.0
    while level > 1e-7 and again.any():
        echoes += level * again
        again, level = late(again, frames), level * parameters["feedback"]
    return echoes


lead = 1000  # frames: a filter rings before a sound begins, and the echoes of that are heard later


def levels(node, parameters, automation, frames, rate):
    """Of each input of a mix, a value for each frame. The first `lead` frames are before the beginning."""
    result = {}
    for number in range(1, 9):
        name = f"level_{number}"
        values = np.full(frames, float(parameters.get(name, 1)))
        lines = [line for line in automation if line[1] == f"{node}.{name}"]
        for time, _, value, ramp in sorted(lines, key=lambda line: line[0]):
            begin, length = lead + round(time * rate), round(ramp * rate)
            start = values[min(begin, frames - 1)]
            values[begin:] = value
            if length:
                way = start + (value - start) * np.arange(length) / length
                values[begin:begin + length] = way[:max(frames - begin, 0)]
        result[number] = values[:, None]
    return result


def mixing(sounds, nodes, automation_text, rate):
    """The mix and the echoes. All sounds have one length."""
    automation = []
    for line in automation_text.splitlines():
        if line.strip() and not line.startswith("#"):
            cells = [cell.strip() for cell in line.split(",")]
            automation.append((float(cells[0]), cells[1], float(cells[2]),
                               float(cells[3]) if len(cells) > 3 else 0.0))
    sounds = {name: np.pad(sound, ((lead, 0), (0, 0))) for name, sound in sounds.items()}
    frames = len(sounds["drums"])
    parameters = {name: node["parameters"] for name, node in nodes.items()}
    duck = compressor(sounds["bass"], sounds["drums"], parameters["duck"], rate)
    clean = high_pass(sounds["vocal"], parameters["clean"], rate)
    send = levels("sends", parameters["sends"], automation, frames, rate)
    echo = delay(sounds["keys"] * send[1] + clean * send[2], parameters["echo"], rate)
    desk = levels("desk", parameters["desk"], automation, frames, rate)
    mix = sum(desk[i] * sound
              for i, sound in enumerate((sounds["drums"], duck, sounds["keys"], clean, echo), 1))
    return mix[lead:] * 10**(parameters["master"]["gain_db"] / 20), echo[lead:]
